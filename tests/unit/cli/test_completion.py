"""What a shell is offered for a word that is typed."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext

import click
import pytest
from click.testing import CliRunner
from tests.unit.cli.fakes import FakeDaemon, ended
from tests.unit.cli.test_asked import PERMISSION, QUESTION

from steprail_daemon.cli.client import Daemon, Message
from steprail_daemon.cli.main import COMMANDS, cli
from steprail_daemon.cli.problems import Problem, Refused
from steprail_daemon.cli.shells import SHELLS, VARIABLE, Bash

LIVE = {**ended("RUNNING"), "run_id": "run_live", "spec": {"prompt": {"parts": [{"text": "Do it"}]}}}
OVER = {**ended("STOPPED"), "run_id": "run_over"}


class Known(FakeDaemon):
    """Knows a live run and one that has ended, an open session and a closed one."""

    async def list_runs(self, session_id: str) -> list[Message]:
        return [LIVE, OVER]

    async def list_sessions(self) -> list[Message]:
        return [
            {"session_id": "ses_open", "state": "SESSION_STATE_IDLE"},
            {"session_id": "ses_closed", "state": "SESSION_STATE_CLOSED"},
        ]


KNOWN = Known(
    agents=[{"name": "claude", "driver": "claude"}, {"name": "scripted"}],
    pending=[{"permission": PERMISSION}, {"question": QUESTION}],
)


def connect(address: str) -> AbstractAsyncContextManager[Daemon]:
    return nullcontext(KNOWN)


def no_daemon(address: str) -> AbstractAsyncContextManager[Daemon]:
    raise Problem("no daemon listens")


class Refusing(FakeDaemon):
    """Answers nothing."""

    async def list_runs(self, session_id: str) -> list[Message]:
        raise Refused("TOKEN_MISSING", "who calls is not known")


Connect = Callable[[str], AbstractAsyncContextManager[Daemon]]


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Give what Bash is told for a line."""
    monkeypatch.setenv("STEPRAIL_ADDRESS", "unix:/nowhere")

    def complete(line: str, connect: Connect = connect) -> list[str]:
        monkeypatch.setenv("COMP_TYPED", line)
        return Bash(cli, {"obj": connect}, "steprail", VARIABLE).complete().splitlines()

    return complete


def test_commands_are_offered_with_the_options_they_have(offered: Callable[..., list[str]]) -> None:
    assert offered("steprail ") == [f"plain,{name}" for name in COMMANDS]
    assert offered("steprail con") == ["plain,continue", "plain,config"]
    assert offered("steprail config ") == ["plain,check", "plain,print"]
    assert offered("steprail run --perm") == ["plain,--permission-mode", "plain,--permissions"]
    assert offered("steprail run --permissions ") == ["plain,ask", "plain,allow", "plain,deny"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("run -a ", ["claude", "scripted"]),
        ("run -a s", ["scripted"]),
        ("show ", ["run_live", "run_over"]),
        ("stop ", ["run_live"]),
        ("abort run_l", ["run_live"]),
        ("steer ", ["run_live"]),
        ("decide ", ["run_live"]),
        ("continue ", ["run_over"]),
        ("watch ", ["run_live", "run_over", "ses_open", "ses_closed"]),
        ("runs --session ", ["ses_open", "ses_closed"]),
        ("close ", ["ses_open"]),
        ("allow ", ["run_1.p000001"]),
        ("answer ", ["run_1.q000001"]),
        ("deny ", ["run_1.p000001", "run_1.q000001"]),
        ("continue --stop-when steps=3 run", ["run_over"]),
    ],
)
def test_a_daemon_that_answers_is_asked_for_names_and_ids(
    line: str, words: list[str], offered: Callable[..., list[str]]
) -> None:
    assert offered(f"steprail {line}") == [f"plain,{word}" for word in words]


@pytest.mark.parametrize("connect", [no_daemon, lambda address: nullcontext(Refusing())])
def test_where_no_daemon_answers_nothing_is_offered_and_nothing_said(
    connect: Connect, offered: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert offered("steprail show ", connect) == []
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("to", ["open,tool=", "open,tokens="]),
        ("finish=len", ["plain,length"]),
        ("finish=length,to", ["plain,length,tool_calls"]),
        ("steps=", []),
    ],
)
def test_rules_are_offered_by_their_words_without_what_bash_keeps(
    typed: str, words: list[str], offered: Callable[..., list[str]]
) -> None:
    assert offered(f"steprail run --stop-when {typed}") == words


def test_files_and_directories_are_left_to_the_shell(offered: Callable[..., list[str]]) -> None:
    assert offered("steprail serve --config ") == ["file,"]
    assert offered("steprail serve --state-dir ") == ["dir,"]
    assert offered("steprail run -C ") == ["dir,"]


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_of_each_shell_asks_the_command(shell: str) -> None:
    result = CliRunner().invoke(cli, ["completion", shell])
    assert result.exit_code == 0
    assert f"{VARIABLE}={shell}_complete" in result.stdout
    assert click.unstyle(result.stdout) == result.stdout


def test_another_shell_is_wrong_usage() -> None:
    result = CliRunner().invoke(cli, ["completion", "tcsh"])
    assert result.exit_code == 2
    assert "'tcsh' is not one of 'bash', 'zsh', 'fish'" in result.stderr
