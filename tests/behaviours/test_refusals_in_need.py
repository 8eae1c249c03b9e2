"""Reasons of a daemon in need: a full disk, no processes to be had, a reader that stalls, a drain, a restart."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc.aio
import pytest
from tests.behaviours import failed_runs, refused_calls
from tests.behaviours.refused_in_need import FAILED, FAILED_FOR_ALL, REFUSED, REFUSED_TO_ALL
from tests.behaviours.refusing import ImpatientDaemon, RefusingDaemon, Site, open_site
from tests.behaviours.scene import Scene
from tests.behaviours.stage import agent
from tests.framework.daemon import short_directory

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

SETTINGS = '[processes]\nworker_backoff = ["0.05s", "0.1s"]\n' + agent("scripted")


@pytest.fixture(scope="module")
async def site() -> AsyncIterator[Site]:
    steps = len(REFUSED) + len(FAILED)
    async with open_site(lambda root: ImpatientDaemon(root, settings=SETTINGS), steps) as made:
        yield made


@pytest.fixture
async def alone() -> AsyncIterator[Scene]:
    """A daemon without neighbours."""
    with short_directory() as directory:
        daemon = RefusingDaemon(directory, settings=SETTINGS)
        try:
            await daemon.start()
            async with grpc.aio.insecure_channel(daemon.address) as channel:
                yield Scene(daemon, channel, "alone")
        finally:
            assert daemon.stop() == 0


@pytest.mark.parametrize("name", REFUSED)
async def test_a_call_is_refused_while_something_is_missing_and_served_when_it_is_back(name: str, site: Site) -> None:
    case = REFUSED[name]
    async with site.scene(name.partition("-")[2]) as scene:
        refused_calls.check(await case.play(scene), case)


@pytest.mark.parametrize("name", FAILED)
async def test_a_run_fails_while_something_is_missing_and_its_session_goes_on_later(name: str, site: Site) -> None:
    case = FAILED[name]
    async with site.scene(name.partition("-")[2]) as scene:
        await failed_runs.judge(scene, await case.play(scene), case)


@pytest.mark.parametrize("name", REFUSED_TO_ALL)
async def test_a_daemon_that_goes_down_refuses_what_is_new_and_ends_in_order(name: str, alone: Scene) -> None:
    case = REFUSED_TO_ALL[name]
    refused_calls.check(await case.play(alone), case)


@pytest.mark.parametrize("name", FAILED_FOR_ALL)
async def test_a_daemon_that_comes_back_says_what_became_of_its_runs(name: str, alone: Scene) -> None:
    case = FAILED_FOR_ALL[name]
    await failed_runs.judge(alone, await case.play(alone), case)
