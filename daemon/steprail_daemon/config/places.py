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

    Where a login without a session manager left the variable unset, the directory that it would name is used if it is
    there.
    """
    if uid == ROOT:
        return ROOT_LISTEN
    usual = Path(f"/run/user/{uid}")
    if not environ.get("XDG_RUNTIME_DIR") and usual.is_dir():
        return (f"unix:{usual}/steprail/steprail.sock",)
    return USER_LISTEN
