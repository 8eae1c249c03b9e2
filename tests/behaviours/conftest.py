"""One daemon for the cases that leave it as it is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import pytest
from tests.behaviours.stage import INPUT, SCRIPTED, PlayedDaemon, Stage, agent, play, recorded
from tests.framework.daemon import short_directory

# Their assertions judge, though they are in no test file.
pytest.register_assert_rewrite("tests.behaviours.refused_calls", "tests.behaviours.failed_runs")


@pytest.fixture(scope="session")
def shared() -> Iterator[PlayedDaemon]:
    with short_directory() as directory:
        daemon = PlayedDaemon(
            directory,
            settings="".join(
                (
                    agent("scripted"),
                    agent("asking", mode="ask"),
                    agent("limited"),
                    agent("recorded", command=recorded(INPUT, SCRIPTED)),
                )
            ),
        )
        anyio.run(daemon.start)
        try:
            yield daemon
        finally:
            assert daemon.stop() == 0


@pytest.fixture
async def stage(shared: PlayedDaemon, tmp_path: Path) -> AsyncIterator[Stage]:
    async with play(shared, tmp_path.name) as made:
        yield made
