"""How the Autohand CLI and the built-in agent are started: arguments, environment, and which versions they may be."""

from __future__ import annotations

import re
from typing import Final

from steprail_daemon.core.model import PermissionMode
from steprail_daemon.drivers.base import LaunchPlan, LaunchSpec, ProbeResult, version_range

#: The version whose ways are known. Nothing on the wire says that the CLI waits at `stepEnd`, so a session counts as
#: gated by its version alone, and the range is narrow.
OLDEST: Final = (0, 8, 2)
#: The first version that is not known.
BEYOND: Final = (0, 9, 0)

#: Nothing but the work itself. `AUTOHAND_NON_INTERACTIVE` is not among them: with it the CLI accepts plans by itself
#: and approves what it asks for in another way than over the wire.
QUIET: Final = {
    "AUTOHAND_OFFLINE": "1",
    "AUTOHAND_SKIP_UPDATE_CHECK": "1",
    "AUTOHAND_SKIP_PING": "1",
    "AUTOHAND_DISABLE_AUTO_REPORT": "1",
    "AUTOHAND_NO_BANNER": "1",
}

#: BYPASS is `interactive` too: the daemon allows whatever it is asked, unless a rule of the operator's denies it, which
#: nobody would ask in the mode `unrestricted`. READ_ONLY is also the CLI's own affair, so that nothing that the user
#: allowed in it for always lets a change pass.
_MODES: Final = {
    PermissionMode.ASK: "interactive",
    PermissionMode.ACCEPT_EDITS: "interactive",
    PermissionMode.READ_ONLY: "restricted",
    PermissionMode.BYPASS: "interactive",
}

_VERSION: Final = re.compile(r"(?:^|[\s/v])([0-9]{1,6}\.[0-9]{1,6}\.[0-9]{1,6})(?:[-+][0-9A-Za-z.+-]*)?(?=\s|$)")


def cli_mode(mode: PermissionMode) -> str:
    """Give the CLI's word for a permission mode."""
    return _MODES[mode]


def plan(spec: LaunchSpec) -> LaunchPlan:
    """Describe the start.

    A session is resumed over the wire, by `session.attach`: the CLI refuses `--resume` and its like, and with `--fork`
    the model did not see what was before. The plan mode is set over the wire too. Options take the next word as their
    value, whatever it looks like.
    """
    argv = [*spec.command, "--mode", "rpc", "--path", spec.cwd]
    if spec.model:
        argv += ["--model", spec.model]
    if spec.instructions:
        argv += ["--append-sys-prompt", spec.instructions]
    if _MODES[spec.permission_mode] == "restricted":
        argv.append("--restricted")
    environment = dict(QUIET)
    directories: tuple[str, ...] = ()
    if spec.isolated_home:
        home = f"{spec.isolated_home}/.autohand"
        environment |= {"HOME": spec.isolated_home, "AUTOHAND_HOME": home}
        directories = (spec.isolated_home, home)
    return LaunchPlan(argv=tuple(argv), environment=environment, directories=directories)


def read_version(output: bytes, code: int | None) -> ProbeResult:
    """Read what `--version` printed, such as `0.8.2`, and judge the version."""
    said = output.decode("utf-8", "replace").strip()
    found = _VERSION.search(said)
    if code != 0 or found is None:
        ended = "did not end" if code is None else f"ended with code {code}"
        return ProbeResult("", f"`--version` {ended} and said {said[:200]!r}, in which there is no version")
    word = found[1]
    version = tuple(int(part) for part in word.split("."))
    if not OLDEST <= version < BEYOND:
        accepted = version_range(OLDEST, BEYOND)
        return ProbeResult(word, f"version {word} is not supported; accepted: {accepted}")
    return ProbeResult(word)
