"""SIGKILL of the worker before and after every commit and every write to an agent loses nothing and repeats nothing.

The points are counted in a first run without any kill. A daemon is killed many times, once in each of its lives, and
the client begins anew when it came to its end; three daemons run at a time, as half of the time is waited.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from tests.chaos.failing import FailingDaemon
from tests.chaos.scenario import Scenario
from tests.framework.daemon import short_directory

from steprail_daemon.journal.verify import verify

pytestmark = pytest.mark.timeout(170)

PARTS = 4
#: Daemons that run at a time.
CHAINS = 3
#: Points of a chain that may be missed: how an agent's output is cut into reads, and so into commits, varies a little.
MAY_MISS = 2


async def played(directory: Path, points: str) -> FailingDaemon:
    """Play the scenario, until every point was reached, under a daemon each of whose lives dies at the next one."""
    daemon = FailingDaemon(directory, points)
    (daemon.workspace / "notes.txt").write_text("remember the milk\n")
    try:
        await daemon.start()
        for number in range(len(points.split(","))):
            await Scenario(daemon, f"{number}").play()
            if points == "count" or len(daemon.lines("fired")) == len(points.split(",")):
                break
    except BaseException as error:
        error.add_note(f"after {daemon.lines('fired')}\n{daemon.log.read_text()[-6000:]}")
        raise
    finally:
        await anyio.to_thread.run_sync(daemon.stop)
    report = verify(daemon.state / "journal.db")
    assert report.problems == (), f"after {daemon.lines('fired')}: {report.problems}"
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
    count = PARTS * CHAINS
    chains = [points[number::count] for number in range(part * CHAINS, (part + 1) * CHAINS)]
    anyio.run(_all_of, chains)


async def _all_of(chains: list[list[str]]) -> None:
    async with anyio.create_task_group() as tasks:
        for chain in chains:
            tasks.start_soon(_chain, chain)


async def _chain(points: list[str]) -> None:
    with short_directory() as directory:
        fired = (await played(directory, ",".join(points))).lines("fired")
    # A point that is not reached keeps those behind it from being tried.
    assert len(fired) >= len(points) - MAY_MISS, points[len(fired) :]
