"""The Autohand CLI as a subprocess, held at `stepEnd` of its JSON-RPC mode; the built-in agent speaks the same."""
