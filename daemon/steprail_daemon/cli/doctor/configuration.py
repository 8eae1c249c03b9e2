"""The configuration: which file, and whether a daemon could start with it."""

from __future__ import annotations

from typing import Final

from steprail_daemon.cli.doctor.findings import CORRECT_IT, Case, Check, Finding, Tell, ok, problem
from steprail_daemon.config.load import ConfigError
from steprail_daemon.config.places import config_candidates

_ABOUT: Final = "configuration"


def unusable(error: ConfigError) -> list[Finding]:
    """Give what is wrong with a configuration that cannot be loaded, before any check."""
    return [problem(_ABOUT, str(each), CORRECT_IT) for each in error.problems]


def file(case: Case, tell: Tell) -> None:
    """Which file it is; that it is valid was seen when it was loaded."""
    if case.loaded.path is not None:
        tell(ok(_ABOUT, f"{case.loaded.path} is valid"))
        return
    places = ", ".join(str(path) for path in config_candidates(case.environ))
    tell(ok(_ABOUT, f"there is no file, the defaults are valid; looked for {places}"))


def start(case: Case, tell: Tell) -> None:
    """What a start would refuse: tokens and certificates that cannot be read, variables that no agent may get."""
    # Here and not above: it brings the whole daemon with it, and where that cannot be imported it is a finding.
    from steprail_daemon.examine import start_problem  # noqa: PLC0415

    found = start_problem(case.loaded, case.environ)
    if found:
        tell(problem(_ABOUT, f"a daemon would not start with it: {found}", "correct what it names, then try again"))


CHECKS: Final[tuple[Check, ...]] = (file, start)
