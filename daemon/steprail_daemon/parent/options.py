"""The parent's command line. Read by hand: argparse would be the largest module of this process."""

from __future__ import annotations

import math
import re

USAGE = """\
usage: python -m steprail_daemon.parent --instance ID [options] -- PROGRAM [ARGUMENT...]

  --instance ID       name of the state directory's life: letters, digits, '-', '_'; same at each start
  --lock PATH         hold this file locked; exit with 78 if another parent holds it
  --grace SECONDS     time the worker has after the first SIGINT or SIGTERM (90)
  --backoff A:B       first and longest pause before a restart of the worker, in seconds (0.5:30)
  --settled SECONDS   a worker that lived this long starts the pauses anew (60)
  --log-format NAME   json or console (json)
"""

_INSTANCE = re.compile(r"[A-Za-z0-9_-]{1,64}")


class UsageError(Exception):
    """The command line is wrong; the text says what and what is accepted."""


class Options:
    """What the parent was told."""

    __slots__ = ("backoff_first", "backoff_longest", "grace", "instance", "lock", "log_json", "settled", "worker")

    def __init__(self) -> None:
        self.instance = ""
        self.lock = ""
        self.grace = 90.0
        self.backoff_first = 0.5
        self.backoff_longest = 30.0
        self.settled = 60.0
        self.log_json = True
        self.worker: list[str] = []


def read_options(arguments: list[str]) -> Options:
    """Read a command line (without the program's name).

    Raises:
        UsageError: an option is unknown, has no value or a wrong one, or something required is missing.
    """
    options = Options()
    rest = list(arguments)
    while rest and rest[0] != "--":
        name, _, value = rest.pop(0).partition("=")
        if name not in _READERS:
            raise UsageError(f"{name} is unknown, expected one of {', '.join(_READERS)}")
        if not value:
            if not rest or rest[0] == "--":
                raise UsageError(f"{name} has no value")
            value = rest.pop(0)
        _READERS[name](options, name, value)
    options.worker = rest[1:]
    if not options.instance:
        raise UsageError("--instance is missing")
    if not options.worker:
        raise UsageError("the worker's command line is missing, expected it after '--'")
    return options


def _instance(options: Options, name: str, value: str) -> None:
    if not _INSTANCE.fullmatch(value):
        raise UsageError(f"{name} is {value!r}, expected 1 to 64 letters, digits, '-' or '_'")
    options.instance = value


def _lock(options: Options, _name: str, value: str) -> None:
    options.lock = value


def _grace(options: Options, name: str, value: str) -> None:
    options.grace = _seconds(name, value)


def _backoff(options: Options, name: str, value: str) -> None:
    first, _, longest = value.partition(":")
    options.backoff_first, options.backoff_longest = _seconds(name, first), _seconds(name, longest)
    if options.backoff_first > options.backoff_longest:
        raise UsageError(f"{name} is {value!r}, expected the first pause to be no longer than the longest")


def _settled(options: Options, name: str, value: str) -> None:
    options.settled = _seconds(name, value)


def _log_format(options: Options, name: str, value: str) -> None:
    if value not in ("json", "console"):
        raise UsageError(f"{name} is {value!r}, expected json or console")
    options.log_json = value == "json"


_READERS = {
    "--instance": _instance,
    "--lock": _lock,
    "--grace": _grace,
    "--backoff": _backoff,
    "--settled": _settled,
    "--log-format": _log_format,
}


def _seconds(name: str, value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise UsageError(f"{name} has {value!r}, expected seconds, 0 or more")
    return seconds
