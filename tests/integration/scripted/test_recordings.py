"""The built-in agent against the recordings of the CLI: the same messages in the same order, keys and values.

What differs by nature (times, ids, durations) is brought to one form first; what differs otherwise is in `DEVIATIONS`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.integration.scripted.deviations import (
    DEVIATIONS,
    Deviation,
    differences,
    explained,
    in_call_order,
    name_of,
    normal,
)
from tests.integration.scripted.recordings import NAMES, Player, Recording, finished

SECOND_PARTS = {"l-reset-state-attach-2": "l-reset-state-attach-1", "l4-fork-2": "l4-fork-1"}
DOCUMENTATION = Path(__file__).parents[3] / "docs" / "scripted-agent.md"


def compare(player: Player) -> tuple[list[str], set[Deviation]]:
    """Give the differences that nothing explains, and the deviations that were needed."""
    recorded = in_call_order([one for one, _ in player.pairs if one is not None])
    actual = in_call_order([other for one, other in player.pairs if one is not None and other is not None])
    assert [name_of(message) for message in recorded] == [name_of(message) for message in actual]
    unexplained: list[str] = []
    used: set[Deviation] = set()
    for one, other in zip(recorded, actual, strict=True):
        left, right = (normal(message, str(player.workspace), str(player.home)) for message in (one, other))
        for path in differences(left, right, ""):
            where = path.replace(".params.", f"{name_of(one)}.").replace(".result.", "answer.")
            where = where.replace(".error.", "error-answer.") if name_of(one) == "error-answer" else where
            deviation = explained(player.recording.name, where)
            if deviation is None:
                unexplained.append(f"{where}: {json.dumps(left)[:300]} became {json.dumps(right)[:300]}")
            else:
                used.add(deviation)
    return unexplained, used


def play(name: str, root: Path) -> tuple[Player, int]:
    if name in SECOND_PARTS:
        play(SECOND_PARTS[name], root)
    player = Player(Recording(name), root)
    if name in SECOND_PARTS:
        # Its first part's saved id is in what the host sends; the agent has an own one.
        saved = next((root / "home" / "sessions").glob("*.jsonl")).stem
        player.ids[_saved_id(name)] = saved
    with player.host:
        return player, finished(player)


def _saved_id(name: str) -> str:
    for record in Recording(SECOND_PARTS[name]).records:
        message = record.get("msg")
        if record["dir"] == "out" and isinstance(message, dict) and "sessions" in message.get("result", {}):
            return str(message["result"]["sessions"][0]["sessionId"])
    raise AssertionError(name)


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("t8-")])
def test_a_recorded_run_happens_again(name: str, tmp_path: Path) -> None:
    player, code = play(name, tmp_path)
    unexplained, _ = compare(player)
    assert unexplained == []
    assert code == (player.recording.exit_code() if player.recording.exit_code() is not None else 1)
    assert all(line.decode().startswith(text.split()[0]) for text, line in player.raw)
    recorded_pings = [record for record in player.recording.records if "autohand.ping" in str(record.get("msg"))]
    assert (player.pings > 0) == bool(recorded_pings)


def test_two_processes_work_side_by_side_on_one_home_and_workspace(tmp_path: Path) -> None:
    one = Player(Recording("t8-two-processes"), tmp_path)
    with one.host:
        one.play_outputs(2)
        other = Player(Recording("t8-two-processes-b"), tmp_path)
        with other.host:
            other.play(until="closing stdin")
            finished(one)
            other.host.close_input()
            finished(other)
    assert compare(one)[0] == []
    assert compare(other)[0] == []


def test_every_deviation_is_needed_and_documented(tmp_path: Path) -> None:
    needed: set[Deviation] = set()
    for name in ("h1-429-with-retry-after", "h3-500-retries", "l-reset-state-attach-1", "r3-ask-followup"):
        needed |= compare(play(name, tmp_path / name)[0])[1]
    needed |= compare(play("c-stopwhen-stop-then-continue", tmp_path / "c")[0])[1]
    assert needed == set(DEVIATIONS)
    page = DOCUMENTATION.read_text()
    assert [deviation.reason for deviation in DEVIATIONS if deviation.reason not in page] == []
