import json
from collections.abc import Callable

from steprail_daemon.drivers.jsonrpc import Requests


def test_requests_are_numbered_and_each_answer_is_taken_once() -> None:
    requests: Requests[Callable[[str, list[str]], None]] = Requests()
    taken: list[str] = []
    first = json.loads(requests.line("a", {"x": "é"}, lambda answer, into: into.append(f"a {answer}")))
    second = json.loads(requests.line("b", None, lambda answer, into: into.append(f"b {answer}")))
    assert first == {"jsonrpc": "2.0", "id": 1, "method": "a", "params": {"x": "é"}}
    assert second == {"jsonrpc": "2.0", "id": 2, "method": "b"}
    for number in (2, 1):
        take = requests.answered(number)
        assert take is not None
        take("done", taken)
    assert taken == ["b done", "a done"]
    assert requests.answered(1) is None


def test_ids_that_were_never_given_have_no_answer() -> None:
    requests: Requests[str] = Requests()
    requests.line("a", None, "what takes it")
    assert [requests.answered(other) for other in (None, "1", 2)] == [None, None, None]
