"""Logs and metrics, moved by the core's events."""
