"""Parts of messages that came together are one part."""

from hypothesis import given
from hypothesis import strategies as st

from steprail_daemon.core.coalescing import LONGEST, coalesced
from steprail_daemon.core.events import MessageDelta, PassiveEvent, RawReceived

RAW = RawReceived("x", "{}")


def test_neighbouring_parts_of_a_message_are_joined_and_nothing_else() -> None:
    events: list[PassiveEvent] = [
        MessageDelta("a", "1"),
        MessageDelta("a", "2"),
        MessageDelta("b", "3"),
        MessageDelta("b", "4", "sub"),
        RAW,
        MessageDelta("b", "5", "sub"),
        MessageDelta("b", "6", "sub", "call"),
    ]

    assert coalesced(events) == [
        MessageDelta("a", "12"),
        MessageDelta("b", "3"),
        MessageDelta("b", "4", "sub"),
        RAW,
        MessageDelta("b", "5", "sub"),
        MessageDelta("b", "6", "sub", "call"),
    ]


def test_a_joined_part_has_a_bound_and_a_long_one_stays_whole() -> None:
    half = "x" * (LONGEST // 2)
    long = "y" * (LONGEST + 1)

    found = coalesced(
        [MessageDelta("a", half), MessageDelta("a", half), MessageDelta("a", "z"), MessageDelta("a", long)]
    )

    assert [part.text for part in found if isinstance(part, MessageDelta)] == [half + half, "z", long]


@given(
    st.lists(
        st.builds(MessageDelta, st.sampled_from("ab"), st.text(max_size=5), st.sampled_from(["", "s"])) | st.just(RAW)
    )
)
def test_no_character_is_lost_or_moved(events: list[PassiveEvent]) -> None:
    def told(of: list[PassiveEvent]) -> list[tuple[str, str, str]]:
        return [
            (one.message_id, one.subagent_id, char) for one in of if isinstance(one, MessageDelta) for char in one.text
        ]

    found = coalesced(events)

    assert told(found) == told(events)
    assert found.count(RAW) == events.count(RAW)
    assert coalesced(found) == found
