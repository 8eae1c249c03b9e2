"""Generated protobuf messages and gRPC stubs of the package `steprail.v1`. Never edited by hand."""
