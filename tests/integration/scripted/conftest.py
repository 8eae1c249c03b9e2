"""A workspace, and agents in it that do not outlive their test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.integration.scripted.client import Host
from tests.integration.scripted.recordings import FILES

Start = Callable[..., Host]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "ws"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def start(workspace: Path, tmp_path: Path) -> Iterator[Start]:
    """Start an agent with a script and flags, and read up to its readiness."""
    with ExitStack() as stack:

        def begin(script: Any = None, *flags: str, ready: bool = True, **options: Any) -> Host:
            host = stack.enter_context(Host(workspace, tmp_path / "home", script, *flags, **options))
            if ready:
                host.until("hook.sessionStart")
            return host

        yield begin
