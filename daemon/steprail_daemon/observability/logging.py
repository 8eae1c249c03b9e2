"""The daemon's log: one line an event on stderr, JSON or for the eyes of people.

Contents of runs are never in it, unless `logging.content` is set.
"""

from __future__ import annotations

import logging
import sys

import structlog


def configure_logging(level: str, form: str) -> None:
    """Send everything that is logged to stderr, at `level` and above.

    Args:
        level: `debug`, `info`, `warning` or `error`.
        form: `json` for one object a line, `console` for people.
    """
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last: structlog.types.Processor = (
        structlog.processors.JSONRenderer()
        if form == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            last,
        ],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
