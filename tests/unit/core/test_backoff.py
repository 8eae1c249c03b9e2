"""How long a provider that refuses is left alone."""

from hypothesis import given
from hypothesis import strategies as st

from steprail_daemon.core.backoff import Backoff, BackoffSettings, accepted, refused
from steprail_daemon.core.model import SECOND, RateLimitKind

TRANSIENT, QUOTA = RateLimitKind.TRANSIENT, RateLimitKind.QUOTA
SETTINGS = BackoffSettings(fallback_ns=20 * SECOND, longest_ns=100 * SECOND)
NOW = 1_000 * SECOND


def test_what_the_provider_says_counts_within_the_longest_wait() -> None:
    assert refused(Backoff(), TRANSIENT, 7 * SECOND, NOW, settings=SETTINGS, chance=0).until_at == NOW + 7 * SECOND
    assert refused(Backoff(), TRANSIENT, 700 * SECOND, NOW, settings=SETTINGS, chance=0).until_at == NOW + 100 * SECOND


def test_without_a_word_the_wait_doubles_with_each_refusal_that_comes_after_the_last_wait() -> None:
    backoff, now, waits = Backoff(), NOW, []
    for _ in range(4):
        backoff = refused(backoff, TRANSIENT, None, now, settings=SETTINGS, chance=0)
        waits.append((backoff.until_at - now) // SECOND)
        now = backoff.until_at

    assert waits == [20, 40, 80, 100]


def test_refusals_of_requests_that_were_under_way_do_not_count_again() -> None:
    first = refused(Backoff(), TRANSIENT, None, NOW, settings=SETTINGS, chance=0)
    second = refused(first, TRANSIENT, None, NOW + SECOND, settings=SETTINGS, chance=0)

    assert second.refusals == first.refusals == 1
    assert second.until_at == NOW + 21 * SECOND


def test_a_shorter_word_does_not_shorten_a_wait() -> None:
    first = refused(Backoff(), TRANSIENT, 50 * SECOND, NOW, settings=SETTINGS, chance=0)

    assert refused(first, TRANSIENT, SECOND, NOW, settings=SETTINGS, chance=0).until_at == first.until_at


def test_a_used_up_quota_is_no_reason_to_wait() -> None:
    assert refused(Backoff(), QUOTA, 5 * SECOND, NOW, settings=SETTINGS, chance=0) == Backoff()


def test_a_request_that_was_served_begins_the_count_anew_once_the_wait_is_over() -> None:
    backoff = refused(Backoff(), TRANSIENT, None, NOW, settings=SETTINGS, chance=0)

    assert accepted(backoff, NOW + SECOND) == backoff
    assert accepted(backoff, backoff.until_at) == Backoff()
    assert backoff.remaining_ns(NOW + SECOND) == 19 * SECOND
    assert backoff.remaining_ns(backoff.until_at + 1) == 0


@given(
    refusals=st.lists(st.tuples(st.none() | st.integers(0, 10**12), st.integers(0, 10**11)), max_size=30),
    chance=st.floats(0, 1),
)
def test_no_wait_is_longer_than_the_longest_and_its_jitter(
    refusals: list[tuple[int | None, int]], chance: float
) -> None:
    backoff, now = Backoff(), NOW
    for retry_after, later in refusals:
        backoff = refused(backoff, TRANSIENT, retry_after, now, settings=SETTINGS, chance=chance)
        assert backoff.remaining_ns(now) <= SETTINGS.longest_ns * 1.1 + 1
        now += later
