"""Logs, metrics and probes.

Metrics are moved by the facts of the core, or through the `observe` that each room is handed.
"""
