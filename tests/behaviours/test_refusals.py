"""Each reason of a refused call, over the wire: code, details, and nobody else notices."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.behaviours import refused_requests, refused_states
from tests.behaviours.refused_calls import check
from tests.behaviours.refused_requests import PROMPT_BYTES
from tests.behaviours.refused_states import MAX_SESSIONS, QUEUE_LENGTH
from tests.behaviours.refusing import RefusingDaemon, Site, open_site
from tests.behaviours.stage import agent

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

CASES = {**refused_requests.CASES, **refused_states.CASES}
SETTINGS = f"""
[limits]
queue_length = {QUEUE_LENGTH}
prompt_bytes = "{PROMPT_BYTES // 1024}KiB"
"""


def _daemon(root: Path) -> RefusingDaemon:
    agents = agent("scripted") + agent("asking", mode="ask") + agent("limited")
    agents += agent("missing", command=["/nowhere/no-such-agent"])
    return RefusingDaemon(root, settings=SETTINGS + agents, max_sessions=MAX_SESSIONS, tcp=True)


@pytest.fixture(scope="module")
async def site() -> AsyncIterator[Site]:
    async with open_site(_daemon, len(CASES)) as made:
        yield made


@pytest.mark.parametrize("name", CASES)
async def test_a_refused_call_says_why_in_full_and_disturbs_nobody(name: str, site: Site) -> None:
    case = CASES[name]
    async with site.scene(name.partition("-")[2]) as scene:
        check(await case.play(scene), case)
