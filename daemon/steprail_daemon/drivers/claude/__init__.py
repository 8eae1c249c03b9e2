"""Claude Code as a subprocess: stream-json with its control protocol, held at the `PostToolBatch` hook."""
