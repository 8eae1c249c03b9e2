"""Kits that others can use too: conformance of stores, playbook, stand-ins for agent and model, benchmarks."""
