"""The client that blocks. The modules `calls_*`, `control` and `live` are generated from their asynchronous twins."""
