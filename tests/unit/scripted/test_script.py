"""Scripts: what is read, and how a wrong one is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from steprail_scripted.faults import POINTS, Fault, Orphan
from steprail_scripted.fields import ScriptError
from steprail_scripted.loading import load_file, load_text
from steprail_scripted.model import Call, ProviderError, Usage
from steprail_scripted.script import Bootstrap, Cursor, Script, Startup, Timers

WHOLE = """
model: m
context_window: 2000
max_iterations: 3
guards: true
report_usage: false
vision: true
repeat: all
timers: {permission_unacknowledged: 1, permission_acknowledged: 2, ping: 3, shutdown: 4, turn_start: 5, first_reply: 6,
  reset: 7, retries: [8, 9.5]}
startup: {delay: 0.5, error: failed}
faults: [{at: start, stderr: hello}]
turns:
  - match: "^fix"
    bootstrap: {delay: 1, fails: true}
    faults:
      - {at: step_end, orphan: {seconds: 5, setsid: true, ignore_term: true, double_fork: true, keep_stdout: true,
         pid_file: x}}
    replies:
      - text: hello
        text_bytes: 3
        reflection: thought
        calls: [{read_file: {path: a}}, {list_tree: }]
        delay: 2
        usage: {input_tokens: 5, output_tokens: 6, cached_input_tokens: 4, reasoning_tokens: 3, cost_micro_usd: 2,
          model: other}
        faults: [{at: tool_end, signal: KILL}]
      - usage: null
      - hang: true
      - error: {status: 429, message: slow, retry_after: 1.5, times: 2, code: c, error_type: e, recoverable: false}
"""


def test_every_field_is_read() -> None:
    script = load_text(WHOLE)
    assert (script.model, script.context_window, script.max_iterations, script.repeat) == ("m", 2000, 3, "all")
    assert (script.guards, script.report_usage, script.vision) == (True, False, True)
    assert script.timers == Timers(1, 2, 3, 4, 5, 6, 7, (8, 9.5))
    assert script.startup == Startup(0.5, "failed")
    assert script.faults == (Fault("start", stderr="hello"),)
    (turn,) = script.turns
    assert turn.match is not None
    assert turn.match.pattern == "^fix"
    assert turn.bootstrap == Bootstrap(1, fails=True)
    assert turn.faults == (
        Fault(
            "step_end",
            orphan=Orphan(5, setsid=True, ignore_term=True, double_fork=True, keep_stdout=True, pid_file="x"),
        ),
    )
    full, silent, hanging, failing = turn.replies
    assert (full.text, full.reflection, full.delay) == ("helloxxx", "thought", 2)
    assert full.calls == (Call("read_file", {"path": "a"}), Call("list_tree", {}))
    assert full.usage == Usage(5, 6, 4, 3, "other", 2)
    assert full.faults == (Fault("tool_end", signal="KILL"),)
    assert (silent.usage, silent.computed_usage) == (None, False)
    assert hanging.hang
    assert hanging.computed_usage
    assert failing.error == ProviderError("slow", 429, 1.5, 2, "c", "e", recoverable=False)


def test_the_script_of_the_documentation_is_one() -> None:
    page = (Path(__file__).parents[3] / "docs" / "scripted-agent.md").read_text()
    script = load_text(page.split("```yaml\n")[1].split("```")[0])
    assert [len(turn.replies) for turn in script.turns] == [3, 1]


@pytest.mark.parametrize("text", ["", "{}", "# nothing\n"])
def test_an_empty_script_is_the_default(text: str) -> None:
    assert load_text(text) == Script()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[]", "script: found []; expected a mapping with some of the keys model, "),
        ("modle: x", "script.modle: no such field; accepted are model, "),
        ("model: 3", "script.model: found 3; expected a string"),
        ("guards: 1", "script.guards: found 1; expected true or false"),
        ("repeat: never", "script.repeat: found 'never'; expected one of plan, last, all"),
        ("max_iterations: 0", "script.max_iterations: found 0; expected an integer, 1 or more"),
        ("max_iterations: true", "script.max_iterations: found True; expected an integer, 1 or more"),
        ("timers: {ping: -1}", "script.timers.ping: found -1; expected a number, 0 or more"),
        ("timers: {ping: .nan}", "script.timers.ping: found nan; expected a number, 0 or more"),
        ("timers: {retries: 3}", "script.timers.retries: found 3; expected a list"),
        ("turns: {}", "script.turns: found {}; expected a list"),
        ("turns: [{match: '('}]", "script.turns[0].match: found '('; expected a regular expression ("),
        (
            "turns: [{replies: [{calls: [read_file]}]}]",
            "script.turns[0].replies[0].calls[0]: found 'read_file'; ex",
        ),
        (
            "turns: [{replies: [{calls: [{a: 1}]}]}]",
            "script.turns[0].replies[0].calls[0]: found {'a': 1}; expected a t",
        ),
        (
            "turns: [{replies: [{usage: {input_tokens: -1}}]}]",
            "script.turns[0].replies[0].usage.input_tokens: found",
        ),
        (
            "turns: [{replies: [{error: {status: 99}}]}]",
            "script.turns[0].replies[0].error.status: found 99; expec",
        ),
        ("faults: [{exit: 1}]", "script.faults[0]: found {'exit': 1}; expected `at`, one of " + ", ".join(POINTS)),
        ("faults: [{at: never, exit: 1}]", "script.faults[0].at: found 'never'; expected one of start, "),
        (
            "faults: [{at: start}]",
            "script.faults[0]: found {'at': 'start'}; expected `at` and exactly one of delay",
        ),
        (
            "faults: [{at: start, exit: 1, delay: 1}]",
            "script.faults[0]: found {'at': 'start', 'exit': 1, 'delay'",
        ),
        ("faults: [{at: start, exit: 256}]", "script.faults[0].exit: found 256; expected an integer from 0 to 255"),
        ("faults: [{at: start, signal: SIGKILL}]", "script.faults[0].signal: found 'SIGKILL'; expected one of ABRT, "),
        ("faults: [{at: start, hang: all}]", "script.faults[0].hang: found 'all'; expected one of turn, process"),
        ("faults: [{at: start, notify: {params: 3}}]", "script.faults[0].notify.params: found 3; expected a mapping"),
        ("model: [", "script: not valid YAML: "),
    ],
)
def test_a_wrong_field_is_named_with_what_was_found_and_what_is_accepted(text: str, complaint: str) -> None:
    with pytest.raises(ScriptError) as caught:
        load_text(text)
    assert str(caught.value).startswith(complaint)


def test_a_long_value_is_cut_in_a_complaint() -> None:
    with pytest.raises(ScriptError, match=r"^script\.guards: found 'x{76}\.\.\.; expected true or false$"):
        load_text(f"guards: {'x' * 1000}")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match=r"nothing\.yaml: cannot be read"):
        load_file(tmp_path / "nothing.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ScriptError, match=r"binary\.yaml: cannot be read"):
        load_file(tmp_path / "binary.yaml")


def picked(text: str, *prompts: str) -> list[str | None]:
    cursor = Cursor(load_text(text))
    turns = [cursor.next_turn(prompt) for prompt in prompts]
    return [turn.replies[0].text if turn is not None else None for turn in turns]


TURNS = "turns: [{match: x, replies: [{text: X}]}, {replies: [{text: A}]}, {replies: [{text: B}]}]"


@pytest.mark.parametrize(
    ("repeat", "expected"),
    [
        ("plan", ["A", "X", "B", None, None]),
        ("last", ["A", "X", "B", "B", "B"]),
        ("all", ["A", "X", "B", "A", "X"]),
    ],
)
def test_turns_are_taken_in_order_by_pattern_and_then_as_repeat_says(repeat: str, expected: list[str | None]) -> None:
    assert picked(f"repeat: {repeat}\n{TURNS}", "a", "x", "b", "c", "x") == expected
