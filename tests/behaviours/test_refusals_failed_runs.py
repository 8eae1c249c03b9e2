"""Each reason of a failed run, with agents that really fail: what the run says, one end, and a session that goes on."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.behaviours.failed_runs import CASES, SETTINGS, judge
from tests.behaviours.refusing import RefusingDaemon, Site, open_site

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]


@pytest.fixture(scope="module")
async def site() -> AsyncIterator[Site]:
    async with open_site(lambda root: RefusingDaemon(root, settings=SETTINGS), len(CASES)) as made:
        yield made


@pytest.mark.parametrize("name", CASES)
async def test_a_failed_run_says_why_ends_once_and_leaves_its_session_usable_or_broken(name: str, site: Site) -> None:
    case = CASES[name]
    async with site.scene(name.partition("-")[2]) as scene:
        await judge(scene, await case.play(scene), case)
