"""What the doctor says of the machine, and how it measures memory."""

import os
import resource
from pathlib import Path

import pytest
from tests.unit.cli.doctor.conftest import MakeCase, lines

from steprail_daemon.cli.doctor import machine, memory


def test_this_machine_has_what_the_daemon_needs(make: MakeCase) -> None:
    (found,) = lines(machine.kernel, make())
    assert found.startswith("ok: Linux ")


def test_descriptors_are_counted_against_the_agents(make: MakeCase, monkeypatch: pytest.MonkeyPatch) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    case = make(environ={"STEPRAIL_SERVER__MAX_PROCESSES": "10"})
    assert lines(machine.descriptors, case) == [
        f"ok: {hard} descriptors (hard limit of RLIMIT_NOFILE here) are enough for server.max_processes = 10"
    ]
    monkeypatch.setattr(machine, "OWN", hard - 15)
    assert lines(machine.descriptors, case) == [
        f"warning: {hard} descriptors (hard limit of RLIMIT_NOFILE here) are enough for about 5 of "
        "server.max_processes = 10"
    ]


def test_memory_is_that_of_the_living_of_a_tree(tmp_path: Path) -> None:
    own = memory.measure([os.getpid()])
    assert own is not None
    assert (own.processes, own.measure, own.size > 1 << 20) == (1, "PSS", True)
    assert os.getpid() in memory.tree(os.getppid())
    assert memory.measure([2**22 + 1]) is None
