"""Where things are by default: the file, the state directory, the address. The environment is handed in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from steprail_daemon.config.schema import ROOT_LISTEN, USER_LISTEN

ROOT = 0


def config_candidates(environ: Mapping[str, str]) -> list[Path]:
    """Give the files that are looked for, first wins, where none is named."""
    home = Path(environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser()
    return [Path("steprail.toml"), home / "steprail" / "config.toml", Path("/etc/steprail/config.toml")]


def state_directory(environ: Mapping[str, str], uid: int) -> Path:
    """Give the directory of journal, homes and lock: $STEPRAIL_STATE_DIR, else by the kind of user."""
    named = environ.get("STEPRAIL_STATE_DIR")
    if named:
        return Path(named).absolute()
    if uid == ROOT:
        return Path("/var/lib/steprail")
    return Path(environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser().absolute() / "steprail"


def default_listen(environ: Mapping[str, str], uid: int) -> tuple[str, ...]:
    """Give the addresses of a daemon that was told none; `$XDG_RUNTIME_DIR` is not expanded yet.

    Where the variable is not set, as under `su` or cron and in containers, the directory that it would name is used if
    it is there, else the state directory. The client looks at the same places.
    """
    if uid == ROOT:
        return ROOT_LISTEN
    if environ.get("XDG_RUNTIME_DIR"):
        return USER_LISTEN
    usual = Path(f"/run/user/{uid}")
    directory = usual / "steprail" if usual.is_dir() else state_directory(environ, uid)
    return (f"unix:{directory}/steprail.sock",)
