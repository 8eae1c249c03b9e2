"""The gRPC edge: decodes a request, calls the engine's facade, encodes the answer."""
