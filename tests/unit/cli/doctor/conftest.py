"""A case to examine, and what checks told of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path

import anyio
import pytest
from tests.unit.cli.fakes import FakeDaemon

from steprail_daemon.cli.client import Daemon
from steprail_daemon.cli.doctor.findings import Case, Check, Finding
from steprail_daemon.config.load import load_config

MakeCase = Callable[..., Case]


@pytest.fixture
def make(tmp_path: Path) -> MakeCase:
    """Make a case of a configuration; `connect` gives the daemon, or raises."""

    def case(
        config: str = "",
        *,
        connect: Callable[[str], AbstractAsyncContextManager[Daemon]] = lambda _: nullcontext(FakeDaemon()),
        state: Path = tmp_path / "state",
        environ: dict[str, str] | None = None,
        **fields: object,
    ) -> Case:
        file = tmp_path / "steprail.toml"
        file.write_text(f'{config}\n[server]\nlisten = ["unix:{tmp_path}/s.sock"]\nworkspace_roots = ["{tmp_path}"]\n')
        variables = {"PATH": "/nowhere", "HOME": str(tmp_path), **(environ or {})}
        loaded = load_config({}, variables, path=file, state_directory=state)
        made = Case(loaded, variables, f"unix:{tmp_path}/s.sock", connect, tuple(loaded.config.agents))
        for name, value in fields.items():
            setattr(made, name, value)
        return made

    return case


def told(check: Check, case: Case) -> list[Finding]:
    """Make one check."""
    found: list[Finding] = []
    if inspect.iscoroutinefunction(check):
        anyio.run(check, case, found.append)
    else:
        check(case, found.append)
    return found


def lines(check: Check, case: Case) -> list[str]:
    """Make one check; gives marks and texts."""
    return [f"{finding.mark.value}: {finding.text}" for finding in told(check, case)]
