"""The environment of an agent: an allow list, never the daemon's own."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

BASE = frozenset(
    {
        "HOME",
        "LANG",
        "LOGNAME",
        "PATH",
        "SHELL",
        "TERM",
        "TMPDIR",
        "TZ",
        "USER",
        "XDG_CACHE_HOME",
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
        "XDG_STATE_HOME",
    }
)
"""Variables that every agent gets, where the daemon has them; those that begin with `LC_` too."""

_LOCALE = "LC_"
_OWN = "STEPRAIL_"
_LOADER = ("LD_", "DYLD_")


class EnvironmentRefused(ValueError):
    """A configured variable may not be given to an agent. The text names the field and the reason."""

    def __init__(self, field: str, name: str, reason: str) -> None:
        super().__init__(f"{field}: variable {name!r} {reason}")
        self.field = field


def build_environment(
    pass_names: Iterable[str] = (),
    set_values: Mapping[str, str] | None = None,
    source: Mapping[str, str] | None = None,
    field: str = "environment",
) -> dict[str, str]:
    """Give an agent's environment: the base variables and `pass_names` from `source`, then `set_values` over them.

    `source` is the daemon's own environment unless given. A name to pass that `source` lacks is left out. What ties the
    agent's processes to it (`STEPRAIL_PROCESS`) is added by the parent process. `field` begins the key named in errors.

    Raises:
        EnvironmentRefused: a name is no name, or belongs to the dynamic loader (`LD_*`, `DYLD_*`: it would run
            foreign code in every program that the agent starts) or to this daemon (`STEPRAIL_*`), or a value holds a
            NUL.
    """
    source = os.environ if source is None else source
    passed = list(pass_names)
    added = dict(set_values or {})
    for name in passed:
        _check_name(name, f"{field}.pass")
    for name, value in added.items():
        _check_name(name, f"{field}.set")
        if "\0" in value:
            raise EnvironmentRefused(f"{field}.set", name, "has a value with a NUL, which no environment can hold")
    allowed = {name: value for name, value in source.items() if name in BASE or name.startswith(_LOCALE)}
    allowed.update((name, source[name]) for name in passed if name in source)
    return allowed | added


def _check_name(name: str, field: str) -> None:
    if not name or "=" in name or "\0" in name:
        raise EnvironmentRefused(field, name, "is no name: expected one that is not empty, without '=' and NUL")
    if name.startswith(_LOADER):
        raise EnvironmentRefused(field, name, "belongs to the dynamic loader and is never given to an agent")
    if name.startswith(_OWN):
        raise EnvironmentRefused(field, name, "belongs to the daemon and is never given to an agent")
