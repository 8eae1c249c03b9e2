"""Which process belongs to which tree, by parent, session and nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from steprail_daemon.parent.lineage import Lineage, ancestors
from steprail_daemon.parent.procfs import Process

OWN = 100
A, B = 1, 2


def processes(*rows: tuple[int, int, int]) -> dict[int, Process]:
    return {pid: Process(pid, ppid, session, start=pid, is_alive=True) for pid, ppid, session in rows}


def test_children_and_sessions_of_claimed_processes_belong_to_the_tree() -> None:
    table = processes(
        (OWN, 1, OWN),
        (200, OWN, 200),
        (201, 200, 200),
        (202, 201, 202),
        (203, OWN, 202),  # re-parented, known by the session that 202 made
        (204, 203, 204),
        (300, OWN, 300),
    )
    lineage = Lineage(table, [OWN], [OWN])
    lineage.claim([200], A)
    lineage.claim([300], B)
    assert lineage.owner == {200: A, 201: A, 202: A, 203: A, 204: A, 300: B}
    assert lineage.unowned() == []


def test_a_session_is_known_without_its_leader() -> None:
    lineage = Lineage(processes((OWN, 1, OWN), (201, OWN, 200)), [OWN], [OWN])
    lineage.claim_session(200, A)
    assert lineage.owner == {201: A}


def test_a_claim_never_spreads_through_a_foreign_session_or_to_the_parent_s_ancestors() -> None:
    table = processes((1, 0, 1), (50, 1, 50), (OWN, 50, 50), (60, 50, 50), (200, OWN, 50))
    lineage = Lineage(table, ancestors(table, OWN), [50])
    lineage.claim([200, 50], A)
    assert lineage.owner == {200: A}
    assert [process.pid for process in lineage.unowned()] == [60]


def test_the_first_claim_stands() -> None:
    lineage = Lineage(processes((200, OWN, 200), (201, 200, 201)), [OWN], [])
    lineage.claim([201], B)
    lineage.claim([200], A)
    assert lineage.owner == {200: A, 201: B}


def test_ancestors_end_at_a_process_that_cannot_be_seen() -> None:
    table = processes((5, 4, 5), (4, 3, 4))
    assert ancestors(table, 5) == {5, 4}


@given(st.lists(st.tuples(st.integers(2, 30), st.integers(1, 30), st.integers(1, 30)), max_size=30), st.integers(2, 30))
def test_a_claim_is_closed_under_parent_and_session(rows: list[tuple[int, int, int]], root: int) -> None:
    table = processes(*rows)
    lineage = Lineage(table, [OWN], [])
    lineage.claim([root], A)
    owned = set(lineage.owner)
    sessions = {table[pid].session for pid in owned}
    for process in table.values():
        assert process.pid in owned or (process.ppid not in owned and process.session not in sessions)
    assert owned <= set(table)
    assert (root in owned) == (root in table)
