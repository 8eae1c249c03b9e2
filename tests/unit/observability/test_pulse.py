"""What probes are answered from, and the pulse that keeps it fresh."""

from __future__ import annotations

from collections.abc import Mapping

import anyio
import pytest

from steprail_daemon.observability.pulse import BEAT_SECONDS, LIVE_SECONDS, Health, beat_for_ever


class Stand:
    """A daemon's health; its time and what its journal says are set by hand."""

    def __init__(self, *, started: bool = True) -> None:
        self.seconds = 100.0
        self.refusal = ""
        self.health = Health(lambda: self.seconds, lambda _: self.refusal)
        self.health.started = started


def test_a_loop_that_turns_is_alive_and_takes_runs() -> None:
    stand = Stand()
    stand.seconds += LIVE_SECONDS
    assert stand.health.live
    assert stand.health.unready() == {}


def test_a_loop_that_has_not_turned_for_too_long_is_neither_until_it_turns_again() -> None:
    stand = Stand()
    stand.seconds += LIVE_SECONDS + 1
    assert not stand.health.live
    assert stand.health.unready() == {"UNRESPONSIVE": "the event loop has not turned for 31 s"}
    stand.health.beat()
    assert stand.health.unready() == {}


def test_a_start_that_takes_long_is_alive_but_takes_no_runs() -> None:
    stand = Stand(started=False)
    stand.seconds += 10 * LIVE_SECONDS
    assert stand.health.live
    assert set(stand.health.unready()) == {"STARTING"}


def test_a_daemon_that_drains_and_one_whose_journal_refuses_are_alive_and_take_no_runs() -> None:
    stand = Stand()
    stand.health.draining = True
    stand.refusal = "disk full"
    assert stand.health.live
    assert stand.health.unready() == {
        "DRAINING": "the daemon goes down",
        "JOURNAL_UNAVAILABLE": "the journal cannot be written: disk full",
    }


@pytest.mark.anyio
async def test_each_beat_shows_that_the_loop_turns_tells_how_late_it_was_and_counts_what_waits() -> None:
    stand = Stand()
    lags: list[float] = []
    counted = anyio.Event()
    left = [True, True, False]

    def observe(name: str, value: float, labels: Mapping[str, str]) -> None:
        assert (name, labels) == ("event_loop_lag_seconds", {})
        lags.append(value)

    def work() -> bool:
        if not left[1:]:
            counted.set()
        return left.pop(0)

    stand.seconds += LIVE_SECONDS + 1
    with anyio.fail_after(20 * BEAT_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(beat_for_ever, stand.health, observe, work)
            await counted.wait()
            tasks.cancel_scope.cancel()
    assert left == []
    assert len(lags) == 1
    assert lags[0] >= 0
    assert stand.health.live
