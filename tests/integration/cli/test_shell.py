"""Completion in a real Bash."""

import json
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest
from tests.framework.daemon import STEPRAIL
from tests.integration.cli.conftest import LIMIT, Steprail
from tests.integration.cli.terminal import on_a_terminal

COMPLETE = """
eval "$(steprail completion bash)"
complete -p steprail
compopt() { echo "compopt $2"; }
COMP_LINE=$1 COMP_POINT=${#1}
_steprail_completion steprail
printf '%s\\n' "${COMPREPLY[@]}"
"""


def completed(steprail: Steprail, line: str) -> list[str]:
    """Give what Bash would offer for a line."""
    environment = {**steprail.environment, "PATH": f"{Path(STEPRAIL).parent}:{steprail.environment['PATH']}"}
    done = subprocess.run(
        ["bash", "--norc", "-c", COMPLETE, "bash", line],
        env=environment,
        cwd=steprail.cwd,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=True,
    )
    assert done.stderr == ""
    first, *offered = done.stdout.splitlines()
    assert first == "complete -o nosort -F _steprail_completion steprail"
    return [line for line in offered if line]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("steprail ver", ["version"]),
        ("steprail run --stop-when tok", ["compopt nospace", "tokens="]),
        ("steprail run --stop-when finish=len", ["length"]),
        ("steprail run --stop-when steps=3 --ask --permission-", ["--permission-mode"]),
        ("steprail run -a cl", ["claude"]),
        ("steprail run -C ", ["compopt dirnames"]),
    ],
)
def test_bash_offers_what_comes_next(line: str, offered: list[str], shared: Steprail) -> None:
    assert completed(shared, line) == offered


def test_bash_offers_the_runs_of_the_daemon(shared: Steprail) -> None:
    run = json.loads(shared.run("run", "--json", "--stop-when", "steps=1", '{"steps": 2}').stdout.splitlines()[-1])[
        "run"
    ]
    assert run["run_id"] in completed(shared, "steprail continue run_")
    assert run["run_id"] not in completed(shared, "steprail stop ")
    assert run["session_id"] in completed(shared, "steprail close ses_")


def test_without_a_daemon_bash_offers_nothing_and_none_is_started(alone: Steprail) -> None:
    assert completed(alone, "steprail show ") == []
    assert not Path(alone.environment["STEPRAIL_STATE_DIR"]).exists()


def test_a_word_is_completed_on_a_terminal(shared: Steprail, tmp_path: Path) -> None:
    (tmp_path / "rc").write_text(f'PS1="> "\nPATH={Path(STEPRAIL).parent}:$PATH\neval "$(steprail completion bash)"\n')
    with on_a_terminal(shared, "--rcfile", str(tmp_path / "rc"), "-i", program="bash") as screen:
        screen.until("> ")
        screen.type("steprail ver\t")
        screen.until("version ")
        screen.type("--js\t")
        screen.until("--json ")
        screen.type("\n")
        screen.until(f'{{"version":"{version("steprail-daemon")}"}}')
        screen.type("exit\n")
        status, _ = screen.end()
    assert status == 0
