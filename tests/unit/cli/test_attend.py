"""What the agent asks while a run is followed: put to a person on a terminal, answered alike, or told how to answer."""

import io
import signal
import termios
from collections.abc import AsyncIterator
from contextlib import redirect_stdout

import anyio
import click
import pytest
from tests.unit.cli.fakes import RUN, FakeControl, FakeDaemon, ended
from tests.unit.cli.screen import Screen, follow, started
from tests.unit.cli.test_asked import COLOURS, PERMISSION, QUESTION

from steprail_daemon.cli.client import Message
from steprail_daemon.cli.follow import Following, follow_asking, follow_new
from steprail_daemon.cli.problems import Problem, Refused

pytestmark = pytest.mark.anyio

ASKED: Message = {"permission_requested": {"permission": PERMISSION}}
ASKS: Message = {"question_requested": {"question": QUESTION}}
RESOLVED: Message = {
    "permission_resolved": {
        "permission_id": "run_1.p000001",
        "answer": "PERMISSION_ANSWER_DENY",
        "source": "RESOLUTION_SOURCE_TIMEOUT",
    }
}
ONCE, SESSION, DENY = (f"run_1.p000001 of run_1: {word}" for word in ("allow_once", "allow_session", "deny"))
PROMPT = "allow? [y]es once, [s]ession, [n]o: "


@pytest.mark.parametrize(
    ("typed", "noted"), [("y", ONCE), ("Yes", ONCE), ("s", SESSION), ("session", SESSION), ("n", DENY), ("no", DENY)]
)
async def test_a_person_answers_at_the_prompt(typed: str, noted: str, screen: Screen) -> None:
    daemon = FakeDaemon([ASKED], wait_for=noted)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow, daemon, screen)
        await screen.until("write_file")
        await screen.until(PROMPT)
        screen.type(f"{typed}\n")
    assert daemon.asked == [noted]


async def test_an_answer_that_is_none_is_asked_again(screen: Screen) -> None:
    daemon = FakeDaemon([ASKED], wait_for=DENY)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow, daemon, screen)
        await screen.until(PROMPT)
        screen.type("\n")
        await screen.until("'' is none of them; accepted: y, yes, s, session, n, no")
        await screen.until(PROMPT)
        screen.type("n\n")


async def test_what_was_typed_before_it_was_asked_is_no_answer(screen: Screen) -> None:
    screen.type("y\ny\n")
    daemon = FakeDaemon([ASKED], wait_for=DENY)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow, daemon, screen)
        await screen.until(PROMPT)
        screen.type("n\n")
    assert daemon.asked == [DENY]


async def test_the_end_of_input_denies(screen: Screen) -> None:
    daemon = FakeDaemon([ASKED], wait_for=DENY)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow, daemon, screen)
        await screen.until(PROMPT)
        screen.type("\x04")
    assert daemon.asked == [DENY]


async def test_permissions_that_are_open_together_are_asked_one_after_the_other(screen: Screen) -> None:
    second = {"permission_requested": {"permission": {**PERMISSION, "permission_id": "run_1.p000002"}}}
    daemon = FakeDaemon([ASKED, second], wait_for="run_1.p000002 of run_1: deny")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow, daemon, screen)
        await screen.until(PROMPT)
        screen.type("y\n")
        await screen.until(PROMPT)
        screen.type("n\n")
    assert daemon.asked == [ONCE, "run_1.p000002 of run_1: deny"]


class Later(FakeDaemon):
    """Gives each further event only when it is let."""

    def __init__(self, *events: Message) -> None:
        super().__init__(list(events))
        self.let = anyio.Event()

    async def watch_run(self, run_id: str) -> AsyncIterator[Message]:
        yield self.events[0]
        for event in self.events[1:]:
            with anyio.fail_after(5):
                await self.let.wait()
            self.let = anyio.Event()
            yield event


async def test_what_happens_while_a_question_is_open_is_told_and_the_question_asked_again(screen: Screen) -> None:
    end: Message = {"turn_end": {}}
    daemon = Later(ASKED, {"file_modified": {"path": "b.txt"}}, end)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow, daemon, screen)
        await screen.until(PROMPT)
        daemon.let.set()
        await screen.until("changed b.txt")
        await screen.until(PROMPT)
        signal.raise_signal(signal.SIGINT)
        await screen.until("stopping at the next step boundary; Ctrl-C again aborts")
        await screen.until(PROMPT)
        daemon.let.set()
    assert daemon.asked == ["stop run_1"]


async def test_a_permission_that_is_settled_elsewhere_is_asked_no_more(screen: Screen) -> None:
    daemon = Later(ASKED, RESOLVED, {"file_modified": {"path": "b.txt"}})
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow, daemon, screen)
        await screen.until(PROMPT)
        daemon.let.set()
        await screen.until("write_file: denied as nobody answered in time")
        daemon.let.set()
        await screen.until(" after 1 step")
    assert daemon.asked == []
    assert PROMPT not in screen.rest()


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        (Refused("PERMISSION_NOT_PENDING", "it is not pending"), "the answer came too late"),
        (Refused("FORBIDDEN", "not for viewers"), "the answer was refused: not for viewers (FORBIDDEN)"),
    ],
)
async def test_an_answer_that_is_not_taken_is_a_word_and_the_run_is_followed_on(
    problem: Refused, said: str, screen: Screen
) -> None:
    daemon = FakeDaemon([ASKED], wait_for=ONCE, refuses=problem)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow, daemon, screen)
        await screen.until(PROMPT)
        screen.type("y\n")
        await screen.until(said)
        await screen.until(" after 1 step")


class Gone(FakeDaemon):
    """Takes an answer, and the connection is lost."""

    async def answer_question(self, run_id: str, question_id: str, answers: object) -> Message:
        self._note("answered")
        raise Problem("the daemon is gone")


async def test_an_answer_that_does_not_get_there_is_said(screen: Screen) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow, Gone([ASKS], wait_for="answered"), screen)
        await screen.until("declines): ")
        screen.type("1\n")
        await screen.until("the answer came to nothing: the daemon is gone")


@pytest.mark.parametrize(("typed", "answers"), [("2", [{"item_id": "i", "option_ids": ["g"]}]), ("", []), ("\x04", [])])
async def test_a_person_answers_a_question_or_declines_it(typed: str, answers: list[Message], screen: Screen) -> None:
    noted = f"run_1.q000001 of run_1: {answers}"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow, FakeDaemon([ASKS], wait_for=noted), screen)
        await screen.until("2. Green")
        await screen.until("answer (number; nothing declines): ")
        screen.type(typed if typed == "\x04" else f"{typed}\n")


async def test_each_item_is_asked_and_a_secret_is_not_shown(screen: Screen) -> None:
    items = [
        {"item_id": "a", "text": "Which?", "options": COLOURS, "free_text": True},
        {"item_id": "b", "text": "Password?", "secret": True},
    ]
    asks = {"question_requested": {"question": {**QUESTION, "items": items}}}
    given = [{"item_id": "a", "option_ids": ["r"]}, {"item_id": "b", "text": "hunter2"}]
    daemon = FakeDaemon([asks], wait_for=f"run_1.q000001 of run_1: {given}")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow, daemon, screen)
        await screen.until("answer (number or text; nothing declines): ")
        screen.type("red\n")
        await screen.until("Password?\r\nanswer (text; nothing declines): ")
        screen.type("hunter2\n")
        await screen.until(" after 1 step")
    assert "hunter2" not in screen.seen + screen.rest()
    assert termios.tcgetattr(screen.slave)[3] & termios.ECHO


@pytest.mark.parametrize("as_json", [False, True])
async def test_without_a_terminal_it_is_said_how_to_answer(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    daemon = FakeDaemon([ASKED, ASKS])
    await follow(daemon, as_json=as_json)
    assert daemon.asked == []
    assert click.unstyle(capsys.readouterr().err).splitlines() == [
        "answer with: steprail allow run_1.p000001, or steprail deny run_1.p000001",
        "answer with: steprail answer run_1.q000001 TEXT, or steprail deny run_1.q000001",
    ]


async def test_where_the_output_goes_elsewhere_the_prompt_tells_what_it_is_about(screen: Screen) -> None:
    output = io.StringIO()
    daemon = FakeDaemon([ASKED], wait_for=DENY)
    following = Following.by(daemon, permissions="ask", as_json=False, descriptor=screen.slave)

    async def run() -> None:
        with screen.written_on(), redirect_stdout(output):
            await follow_new(following, started)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await screen.until("asks for permission: Write to this file? a.txt")
        await screen.until(PROMPT)
        screen.type("n\n")
    assert "asks for permission: Write to this file? a.txt" in output.getvalue()


async def test_nobody_is_asked_on_a_terminal_whose_output_a_program_reads(screen: Screen) -> None:
    await follow(FakeDaemon([ASKED]), screen, as_json=True)
    assert PROMPT not in screen.rest()


@pytest.mark.parametrize(("permissions", "noted"), [("allow", ONCE), ("deny", DENY)])
async def test_all_are_answered_alike_where_the_command_line_says_so(permissions: str, noted: str) -> None:
    daemon = FakeDaemon([ASKED, ASKS], wait_for="run_1.q000001 of run_1: []")
    await follow(daemon, permissions=permissions)
    assert sorted(daemon.asked) == [noted, "run_1.q000001 of run_1: []"]


async def test_permissions_are_allowed_unasked_and_questions_still_put_to_the_person(screen: Screen) -> None:
    daemon = FakeDaemon([ASKED, ASKS], wait_for="run_1.q000001 of run_1: [{'item_id': 'i', 'option_ids': ['r']}]")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow, daemon, screen, "allow")
        await screen.until("answer (number; nothing declines): ")
        screen.type("1\n")
    assert daemon.asked[0] == ONCE


async def test_a_person_who_decides_at_boundaries_is_asked_for_permission_too(screen: Screen) -> None:
    control = FakeControl(
        [
            ("opened", {"run": RUN}),
            ("event", ASKED),
            ("decision_requested", {"step": {"number": "1", "step_id": "step_1"}}),
            ("(wait)", {}),
            ("finished", {"run": ended("STOPPED")}),
        ]
    )
    daemon = FakeDaemon(control=control)
    following = Following.by(daemon, permissions="ask", as_json=False, descriptor=screen.slave)

    async def run() -> None:
        with screen.written_on():
            assert await follow_asking(following, lambda: daemon.control_new("ses_1", "Hi", [])) == 10

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await screen.until(PROMPT)
        screen.type("y\n")
        await screen.until("step 1: [c]ontinue or [s]top? ")
        screen.type("s\n")
    assert ONCE in daemon.asked
    assert control.decisions == [("step_1", False)]
