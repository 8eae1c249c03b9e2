"""The engine's clock, while somebody sets the machine's."""

from __future__ import annotations

import time

import pytest

from steprail_daemon.core.model import SECOND
from steprail_daemon.engine.system import SystemClock

HOUR = 3600 * SECOND


@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_a_step_of_the_machines_clock_does_not_move_a_clock_that_was_made_before(
    step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SystemClock()
    before, real_ns, real = clock.now(), time.time_ns, time.time
    monkeypatch.setattr(time, "time_ns", lambda: real_ns() + step)
    monkeypatch.setattr(time, "time", lambda: real() + step // SECOND)
    assert 0 <= clock.now() - before < HOUR // 2
    # One that is made now begins with the time as it was set, so the step was one.
    assert abs(SystemClock().now() - clock.now() - step) < HOUR // 2
