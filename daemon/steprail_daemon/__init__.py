"""The daemon: owns coding-agent CLIs, serves them over gRPC and stops them at step boundaries."""
