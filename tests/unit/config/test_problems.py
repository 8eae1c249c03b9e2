"""What is refused, and how it is said: the place, the key, what is wrong, what is accepted."""

from pathlib import Path

import pytest
from tests.unit.config.conftest import USER, Loader

from steprail_daemon.config.load import ConfigError, load_config
from steprail_daemon.config.schema import Config, children

SPAN = 'a number with a unit (ms, s, m, h) such as "250ms", "0.5s", "10m" or "6h"'


def only(problems: list[str]) -> str:
    assert len(problems) == 1, problems
    return problems[0]


def test_an_unknown_key_is_named_with_the_nearest_and_all_accepted_ones(loader: Loader) -> None:
    assert only(loader.problems('[agents.claude]\nmodle = "x"\n')) == (
        "steprail.toml:2: agents.claude.modle: unknown key, did you mean model?; accepted: driver, command, home, "
        "environment, model, permission_mode, checksum"
    )


def test_an_unknown_section_is_an_unknown_key(loader: Loader) -> None:
    assert only(loader.problems("\n[unheard.of]\nx = 1\n")) == (
        f"steprail.toml:2: unheard: unknown key; accepted: {', '.join(children(Config))}"
    )


def test_an_unknown_variable_is_a_problem(loader: Loader) -> None:
    assert only(loader.problems(environ={"STEPRAIL_LIMITS__MAX_STEP": "3"})) == (
        "environment STEPRAIL_LIMITS__MAX_STEP: no key has this variable, did you mean STEPRAIL_LIMITS__MAX_STEPS?; "
        "accepted: STEPRAIL_<SECTION>__<KEY> for a key of the reference"
    )


def test_a_variable_of_an_agent_that_is_not_configured_is_a_problem(loader: Loader) -> None:
    problem = only(loader.problems(environ={"STEPRAIL_AGENTS__CODEX__MODEL": "x"}))
    assert problem.startswith("environment STEPRAIL_AGENTS__CODEX__MODEL: no key has this variable")


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("limits.max_stepz", "flag: limits.max_stepz: unknown key, did you mean max_steps?; accepted: max_steps, "),
        ("journal.sync", "flag: journal.sync: unknown key; accepted: synchronous"),
        ("nothing", "flag: nothing: unknown key; accepted: version, server.listen, "),
    ],
)
def test_an_unknown_flag_is_a_problem(flag: str, said: str, loader: Loader) -> None:
    assert only(loader.problems(flags={flag: "1"})).startswith(said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("version = 2", ":1: version: 2 is out of range; accepted: 1"),
        ("limits = 3", ":1: limits: it is not a table; accepted: a table of max_steps, hard_timeout, "),
        ("agents = 3", ":1: agents: it is not a table; accepted: a table for each agent"),
        ("limits.max_steps = 0", ":1: limits.max_steps: 0 is out of range; accepted: a whole number from 1 to 1000000"),
        ("limits.max_steps = true", ":1: limits.max_steps: true is not a whole number; accepted: "),
        ('limits.max_steps = "5"', ':1: limits.max_steps: "5" is not a whole number; accepted: '),
        ("limits.hard_timeout = 60", f':1: limits.hard_timeout: 60 has no unit; accepted: {SPAN}, from "1s" to "720h"'),
        ('limits.hard_timeout = "60"', ':1: limits.hard_timeout: "60" is not a number with a unit; accepted: '),
        ('limits.hard_timeout = "-5s"', ':1: limits.hard_timeout: "-5s" is not a number with a unit; accepted: '),
        ('limits.hard_timeout = "2d"', ':1: limits.hard_timeout: "2d" has the unknown unit "d"; accepted: '),
        ('limits.hard_timeout = "10ms"', ':1: limits.hard_timeout: "10ms" is out of range; accepted: '),
        ('limits.line_bytes = "1MB"', ':1: limits.line_bytes: "1MB" has the unknown unit "MB"; accepted: '),
        ('limits.prompt_bytes = "17MiB"', ':1: limits.prompt_bytes: "17MiB" is out of range; accepted: '),
        (
            'server.listen = ["example.com:7443"]',
            ':1: server.listen: entry 1: "example.com" is no IP address; accepted: a list of 1 to 8 entries, each of '
            "them unix: and an absolute path of at most 107 bytes, or an IP address (or localhost) with a port, such ",
        ),
        ('server.listen = ["dns:x"]', 'entry 1: "dns:x" is neither a Unix socket nor an IP address with a port; '),
        ('server.listen = ["127.0.0.1:0"]', ":1: server.listen: entry 1: 0 is no port; accepted: "),
        ('server.listen = ["[::1]:70000"]', ":1: server.listen: entry 1: 70000 is no port; accepted: "),
        ('server.listen = ["unix:a.sock"]', ':1: server.listen: entry 1: the path in "unix:a.sock" is not absolute; '),
        ("server.listen = []", ":1: server.listen: it has 0 entries; accepted: a list of 1 to 8 entries, "),
        ('server.listen = "unix:/a"', ':1: server.listen: "unix:/a" is not a list; accepted: '),
        ('server.listen = ["unix:/a", "unix:///a"]', ":1: server.listen: an entry is there twice; accepted: "),
        (
            'server.listen = ["unix:$NOT/a"]',
            ':1: server.listen: "unix:$NOT/a" needs the variable NOT, which is not set',
        ),
        (f'server.listen = ["unix:/{"a" * 107}"]', " has more than 107 bytes, the system's limit; accepted: "),
        (
            'server.workspace_roots = ["gone"]',
            ":1: server.workspace_roots: gone is no directory; accepted: directories",
        ),
        ('journal.synchronous = "off"', ':1: journal.synchronous: "off" is none of them; accepted: normal, full'),
        ('agents.coder.driver = "codex"', ':1: agents.coder.driver: "codex" is none of them; accepted: claude'),
        ("agents.coder = {}", 'agents.coder.driver: "coder" is none of them; accepted: claude'),
        (
            'agents.claude.command = "claude"',
            ':1: agents.claude.command: "claude" is not a list; accepted: a list of 1 ',
        ),
        ("agents.claude.command = []", ":1: agents.claude.command: it has 0 entries; accepted: "),
        ('agents.claude.command = [""]', ":1: agents.claude.command: entry 1: it is empty; accepted: "),
        ('agents.claude.checksum = "AB"', ':1: agents.claude.checksum: "AB" is no SHA-256; accepted: 64 hexadecimal '),
        ('agents.claude.model = "a\\u0000"', ":1: agents.claude.model: it contains a NUL character; accepted: "),
        (
            'agents.claude.environment.pass = ["STEPRAIL_X"]',
            ":1: agents.claude.environment.pass: entry 1: STEPRAIL_X belongs to steprail itself, which marks its "
            "agents by such variables; accepted: ",
        ),
        (
            'agents.claude.environment.pass = ["LD_LIBRARY_PATH"]',
            ":1: agents.claude.environment.pass: entry 1: LD_LIBRARY_PATH belongs to the dynamic loader, which would "
            "run foreign code in every program of the agent; accepted: a list of 0 to 1000 entries, each of them "
            "letters, digits and underscores, not beginning with a digit, LD_, DYLD_, STEPRAIL_",
        ),
        (
            'agents.claude.environment.set = { LD_PRELOAD = "/x.so" }',
            ":1: agents.claude.environment.set: LD_PRELOAD belongs to the dynamic loader, ",
        ),
        ('agents.claude.environment.set.DYLD_X = "1"', "environment.set: DYLD_X belongs to the dynamic loader, "),
        ('agents.claude.environment.set.STEPRAIL_X = "1"', "environment.set: STEPRAIL_X belongs to steprail itself, "),
        ('agents.claude.environment.pass = ["A-B"]', 'entry 1: "A-B" is no name of a variable; accepted: '),
        ("agents.claude.environment.set = 3", ":1: agents.claude.environment.set: it is not a table; accepted: "),
        (
            "agents.Claude = {}",
            ":1: agents.Claude: it is no name of an agent; accepted: at most 63 lower-case letters, ",
        ),
        ("agents.claude = 1", ":1: agents.claude: it is not a table; accepted: a table of driver, command, "),
        ('logging.format = "xml"', ':1: logging.format: "xml" is none of them; accepted: json, console'),
        ('processes.ladder = ["term", "kill"]', ':1: processes.ladder: entry 1: "term" is no rung; accepted: '),
        (
            'processes.ladder = ["term:5s"]',
            ":1: processes.ladder: the rungs must be in the order end, eof, term, kill, ",
        ),
        ('processes.ladder = ["term:1s", "eof:1s", "kill"]', ":1: processes.ladder: the rungs must be in the order "),
        ('processes.worker_backoff = ["1s"]', ":1: processes.worker_backoff: it has 1 entries; accepted: a list of 2 "),
        ('processes.worker_backoff = ["2s", "1s"]', ":1: processes.worker_backoff: the first pause is longer than "),
    ],
)
def test_a_wrong_value_is_named_with_its_place_and_what_is_accepted(text: str, said: str, loader: Loader) -> None:
    problem = only(loader.problems(text + "\n"))
    assert said in problem


def test_a_secret_is_not_in_the_problem_about_it(loader: Loader) -> None:
    problem = only(loader.problems('[agents.claude.environment]\nset = { KEY = ["sk-secret"] }\n'))
    assert "the value of KEY is not a string" in problem
    assert "sk-secret" not in problem


def test_a_drain_that_does_not_fit_its_grace_is_refused_with_the_sum(loader: Loader) -> None:
    assert only(loader.problems('[drain]\ngrace = "80s"\n')) == (
        'steprail.toml:2: drain.grace: "80s" is too short: drain.window "1m", limits.abort_timeout "10s" and the rungs '
        'of processes.ladder "15s" need "85s"'
    )


def test_two_agents_that_variables_cannot_tell_apart_are_refused(loader: Loader) -> None:
    problem = only(loader.problems('[agents.a-b]\ndriver="claude"\n[agents.a_b]\ndriver="claude"\n'))
    assert (
        problem == "steprail.toml:3: agents.a_b: it differs from a-b in _ and - only, which variables cannot tell apart"
    )


def test_everything_that_is_wrong_is_reported_together(loader: Loader) -> None:
    problems = loader.problems(
        '[limits]\nmax_steps = 0\nmax_step = 1\n[logging]\nlevel = "loud"\n',
        environ={"STEPRAIL_LIMITS__PROMPT_BYTES": "many"},
        flags={"drain.window": "soon"},
    )
    assert [problem.partition(" ")[0] for problem in problems] == [
        "steprail.toml:3:",
        "steprail.toml:2:",
        "environment",
        "flag:",
        "steprail.toml:5:",
    ]


def test_what_is_not_toml_is_reported_with_its_line(loader: Loader) -> None:
    problem = only(loader.problems("version = 1\n[server\n"))
    assert problem.startswith("steprail.toml: is not TOML: ")
    assert "line 2" in problem


def test_what_is_not_utf8_is_reported(loader: Loader) -> None:
    loader.file.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"cannot be read: .*utf-8"):
        load_config({}, loader.environ, path=loader.file, uid=USER)


def test_a_default_root_of_the_whole_machine_has_to_be_written_down(
    loader: Loader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader.file.touch()
    monkeypatch.chdir("/")
    with pytest.raises(ConfigError) as caught:
        load_config({}, loader.environ, path=loader.file, uid=USER)
    assert str(caught.value) == (
        "server.workspace_roots: the daemon is started in /, which would allow every directory; start it in another "
        "one, or name directories, as with --set server.workspace_roots=/srv/agents"
    )
    assert load_config({}, loader.environ, path=loader.file, uid=USER, serves=False).config.server.listen
    loaded = load_config({"server.workspace_roots": "/"}, loader.environ, path=loader.file, uid=USER)
    assert loaded.config.server.workspace_roots == ("/",)


def test_a_user_without_a_runtime_directory_has_the_socket_in_the_state_directory(loader: Loader) -> None:
    loader.file.touch()
    for environ, address in (
        ({"STEPRAIL_STATE_DIR": "/state"}, "unix:/state/steprail.sock"),
        ({"XDG_STATE_HOME": "/home/state"}, "unix:/home/state/steprail/steprail.sock"),
    ):
        loaded = load_config({}, environ, path=loader.file, uid=4_000_000_000)
        assert loaded.config.server.listen == (address,)


def test_a_variable_that_a_value_needs_is_told_where_it_is_missing(loader: Loader) -> None:
    loader.file.write_text('version = 1\n[server]\nlisten = ["unix:$XDG_RUNTIME_DIR/s.sock"]\n')
    with pytest.raises(ConfigError, match=r"server\.listen: .* needs the variable XDG_RUNTIME_DIR, which is not set"):
        load_config({}, {}, path=loader.file, uid=4_000_000_000)
