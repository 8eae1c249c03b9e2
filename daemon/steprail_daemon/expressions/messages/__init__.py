"""Messages generated from the protos beside them. Never edited by hand."""
