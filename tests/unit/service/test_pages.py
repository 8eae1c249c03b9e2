"""Pages of lists."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steprail.v1 import agents_pb2, runs_pb2, sessions_pb2
from steprail_daemon.core.errors import Invalid
from steprail_daemon.service.pages import MAX_PAGE, PAGE_BYTES, Page


def agent(name: str) -> agents_pb2.Agent:
    return agents_pb2.Agent(name=name)


@given(names=st.lists(st.text("abc", min_size=1, max_size=4), unique=True), size=st.integers(0, 7))
def test_following_the_tokens_gives_every_item_once_in_order(names: list[str], size: int) -> None:
    names.sort()
    seen: list[str] = []
    token = ""
    while True:
        request = agents_pb2.ListAgentsRequest(page_size=size, page_token=token)
        page = Page(request, request.page_size, request.page_token)
        items, token = page.fill([name for name in names if name > page.after], str, agent)
        seen += [item.name for item in items]
        assert len(items) <= (size or 100)
        if not token:
            break
        assert items

    assert seen == names


def test_a_page_is_closed_by_size_too() -> None:
    request = agents_pb2.ListAgentsRequest(page_size=100)
    items, token = Page(request, 100, "").fill([str(n) for n in range(9)], str, lambda _: agent("x" * 200_000))

    assert len(items) == 3
    assert sum(item.ByteSize() for item in items) < PAGE_BYTES + 200_100
    assert token


def test_a_large_page_is_cut_to_what_is_allowed() -> None:
    assert Page(agents_pb2.ListAgentsRequest(), 10**9, "").size == MAX_PAGE


def test_a_negative_size_is_refused() -> None:
    with pytest.raises(Invalid, match="page_size is -1"):
        Page(agents_pb2.ListAgentsRequest(), -1, "")


@given(st.text(max_size=40) | st.binary(max_size=40).map(lambda data: base64.urlsafe_b64encode(data).decode()))
def test_whatever_comes_as_a_token_is_read_or_refused(token: str) -> None:
    try:
        Page(agents_pb2.ListAgentsRequest(), 0, token)
    except Invalid as error:
        assert error.reason == "PAGE_TOKEN_INVALID"  # noqa: PT017
        assert error.field == "page_token"  # noqa: PT017
    else:
        assert token == ""


def test_a_token_holds_for_its_own_list_and_filters_alone() -> None:
    request = runs_pb2.ListRunsRequest(labels={"a": "b"})
    token = Page(request, 0, "").token("run_1")

    assert Page(runs_pb2.ListRunsRequest(labels={"a": "b"}, page_size=3, page_token=token), 3, token).after == "run_1"
    for other in (runs_pb2.ListRunsRequest(), sessions_pb2.ListSessionsRequest(labels={"a": "b"})):
        with pytest.raises(Invalid, match="another query"):
            Page(other, 0, token)
