"""SIGKILL of the worker before and after every commit and every write to an agent loses nothing and repeats nothing.

The points are counted in a first run without any kill. Several daemons run at a time, since most of the time is waited.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import anyio
import pytest
from tests.chaos.failing import FailingDaemon
from tests.chaos.scenario import Scenario
from tests.framework.daemon import short_directory

from steprail_daemon.journal.verify import verify

pytestmark = pytest.mark.timeout(170)

PARTS = 4
AT_ONCE = 4


async def played(directory: Path, point: str) -> FailingDaemon:
    """Play the scenario under a daemon that dies at a point, and check what is left."""
    daemon = FailingDaemon(directory, point)
    (daemon.workspace / "notes.txt").write_text("remember the milk\n")
    try:
        await daemon.start()
        await Scenario(daemon).play()
    except BaseException as error:
        error.add_note(f"at {point}\n{daemon.log.read_text()[-6000:]}")
        raise
    finally:
        await anyio.to_thread.run_sync(daemon.stop)
    report = verify(daemon.state / "journal.db")
    assert report.problems == (), f"at {point}: {report.problems}"
    return daemon


@pytest.fixture(scope="module")
def points() -> Iterator[list[str]]:
    """Every point that the scenario passes."""
    with short_directory() as directory:
        yield anyio.run(played, directory, "count").lines("hits")


def test_the_scenario_passes_every_kind_of_point(points: list[str]) -> None:
    kinds = {point.rpartition(":")[0] for point in points}
    assert kinds == {"commit:before", "commit:after", "write:before", "write:after"}
    assert len(points) > 100


@pytest.mark.parametrize("part", range(PARTS))
def test_a_kill_at_any_point_loses_nothing_and_repeats_nothing(points: list[str], part: int) -> None:
    anyio.run(partial(_all_of, points[part::PARTS]))


async def _all_of(points: list[str]) -> None:
    limit = anyio.CapacityLimiter(AT_ONCE)

    async def one(point: str) -> None:
        async with limit:
            with short_directory() as directory:
                if (await played(directory, point)).lines("fired") != [point]:
                    missed.append(point)

    missed: list[str] = []
    async with anyio.create_task_group() as tasks:
        for point in points:
            tasks.start_soon(one, point)
    # How an agent's output is cut into reads, and with that into commits, varies a little.
    assert len(missed) <= len(points) // 8, missed
