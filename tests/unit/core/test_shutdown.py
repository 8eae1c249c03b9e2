"""The ladder: read, checked, and shortened."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steprail_daemon.core.shutdown import Ladder, LadderError, Rung, RungKind, parse_ladder

SECOND = 1_000_000_000


def test_the_default_ladder_is_read() -> None:
    assert parse_ladder(["end:5s", "eof:500ms", "term:0.25s", "kill"]) == Ladder(
        (
            Rung(RungKind.END, 5 * SECOND),
            Rung(RungKind.EOF, SECOND // 2),
            Rung(RungKind.TERM, SECOND // 4),
            Rung(RungKind.KILL, 0),
        )
    )


def test_the_kill_alone_is_a_ladder() -> None:
    assert parse_ladder(["kill"]).total == 0


def test_total_is_the_time_until_the_kill() -> None:
    assert parse_ladder(["end:1m", "int:1s", "kill"]).total == 61 * SECOND


def test_unsafe_rungs_are_left_out_and_the_kill_stays() -> None:
    ladder = parse_ladder(["end:1s", "eof:1s", "term:1s", "kill"])
    assert ladder.without(RungKind.EOF) == parse_ladder(["end:1s", "term:1s", "kill"])
    assert ladder.without(*RungKind) == parse_ladder(["kill"])


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([], "processes.ladder: there is no rung; expected 'kill' as the last one"),
        (["end:5s"], "processes.ladder: last rung is 'end:5s'; expected 'kill' as the last one"),
        (["kill", "term:5s"], "processes.ladder: last rung is 'term:5s'; expected 'kill' as the last one"),
        (["hup:5s", "kill"], "processes.ladder[0]: rung 'hup' is unknown; expected one of end, eof, int, term, kill"),
        (["TERM:5s", "kill"], "processes.ladder[0]: rung 'TERM' is unknown; expected one of end, eof, int, term, kill"),
        (["kill:5s"], "processes.ladder[0]: 'kill' has the time '5s'; expected 'kill' alone"),
        (
            ["term:5s", "eof:5s", "kill"],
            "processes.ladder[1]: 'eof' comes after 'term'; "
            "expected each rung at most once, in the order end, eof, int, term, kill",
        ),
        (
            ["eof:5s", "eof:5s", "kill"],
            "processes.ladder[1]: 'eof' comes after 'eof'; "
            "expected each rung at most once, in the order end, eof, int, term, kill",
        ),
        (
            ["end", "kill"],
            "processes.ladder[0].end: time is ''; expected a time like '5s', '0.5s', '500ms' or '1m', at most 60m",
        ),
        (
            ["end:-5s", "kill"],
            "processes.ladder[0].end: time is '-5s'; expected a time like '5s', '0.5s', '500ms' or '1m', at most 60m",
        ),
        (
            ["end:61m", "kill"],
            "processes.ladder[0].end: time is '61m'; expected a time like '5s', '0.5s', '500ms' or '1m', at most 60m",
        ),
    ],
)
def test_a_wrong_ladder_names_the_field_what_was_wrong_and_what_is_accepted(entries: list[str], message: str) -> None:
    with pytest.raises(LadderError) as caught:
        parse_ladder(entries)
    assert str(caught.value) == message


def test_the_field_named_is_the_one_given() -> None:
    with pytest.raises(LadderError) as caught:
        parse_ladder([], field="agents.claude.ladder")
    assert caught.value.field == "agents.claude.ladder"


@given(st.integers(0, 3600), st.integers(0, 999_999_999))
def test_fractions_of_seconds_are_exact(whole: int, nanoseconds: int) -> None:
    wait = whole * SECOND + nanoseconds
    entries = [f"eof:{whole}.{nanoseconds:09d}s", "kill"]
    if wait > 3600 * SECOND:
        with pytest.raises(LadderError):
            parse_ladder(entries)
    else:
        assert parse_ladder(entries).rungs[0].wait == wait


@given(
    st.sets(st.sampled_from([kind for kind in RungKind if kind is not RungKind.KILL])),
    st.sets(st.sampled_from(RungKind)),
)
def test_every_ladder_ends_with_the_kill_whatever_is_left_out(kinds: set[RungKind], left_out: set[RungKind]) -> None:
    entries = [f"{kind.value}:1s" for kind in RungKind if kind in kinds]
    rungs = parse_ladder([*entries, "kill"]).without(*left_out).rungs
    assert rungs[-1] == Rung(RungKind.KILL, 0)
    assert [rung.kind for rung in rungs[:-1]] == [kind for kind in RungKind if kind in kinds - left_out]
