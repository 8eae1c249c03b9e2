"""What is allowed, denied and asked, and in which order rules, grants and modes are heard."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steprail_daemon.core.model import PermissionAction, PermissionMode, PermissionRule, ToolKind
from steprail_daemon.core.policy import Policy, Subject, ToolAsk, canonical, expressions_of, judge, problem, subject

ALLOW, DENY, ASK = PermissionAction.ALLOW, PermissionAction.DENY, PermissionAction.ASK
CWD = "/srv/app"


def rule(action: PermissionAction, **conditions: str) -> PermissionRule:
    return PermissionRule(action=action, **conditions)


def an_ask(**fields: Any) -> ToolAsk:
    return ToolAsk(**{"tool": "Bash", "tool_kind": ToolKind.EXECUTE, "arguments_json": "{}", "cwd": CWD, **fields})


def a_policy(mode: PermissionMode = PermissionMode.ASK, **fields: Any) -> Policy:
    return Policy(mode=mode, **fields)


@pytest.mark.parametrize(
    ("mode", "kind", "action"),
    [
        (PermissionMode.ASK, ToolKind.READ, ALLOW),
        (PermissionMode.ASK, ToolKind.SEARCH, ALLOW),
        (PermissionMode.ASK, ToolKind.EDIT, ASK),
        (PermissionMode.ASK, ToolKind.EXECUTE, ASK),
        (PermissionMode.ASK, ToolKind.FETCH, ASK),
        (PermissionMode.ASK, ToolKind.UNKNOWN, ASK),
        (PermissionMode.ACCEPT_EDITS, ToolKind.READ, ALLOW),
        (PermissionMode.ACCEPT_EDITS, ToolKind.EXECUTE, ASK),
        (PermissionMode.READ_ONLY, ToolKind.READ, ALLOW),
        (PermissionMode.READ_ONLY, ToolKind.EDIT, DENY),
        (PermissionMode.READ_ONLY, ToolKind.EXECUTE, DENY),
        (PermissionMode.READ_ONLY, ToolKind.UNKNOWN, DENY),
        (PermissionMode.BYPASS, ToolKind.UNKNOWN, ALLOW),
    ],
)
def test_without_rules_the_mode_rules(mode: PermissionMode, kind: ToolKind, action: PermissionAction) -> None:
    assert judge(a_policy(mode), an_ask(tool_kind=kind)).action is action


@pytest.mark.parametrize(
    ("paths", "action"),
    [(("/srv/app/a",), ALLOW), (("/srv/app/a", "/etc/passwd"), ASK), (("/srv/appspace/a",), ASK), ((), ASK)],
)
def test_edits_are_accepted_under_the_sessions_directory_only(paths: tuple[str, ...], action: PermissionAction) -> None:
    ask = an_ask(tool="Write", tool_kind=ToolKind.EDIT, paths=paths)

    assert judge(a_policy(PermissionMode.ACCEPT_EDITS), ask).action is action


def test_the_first_rule_that_matches_counts_but_a_denial_wins_from_anywhere() -> None:
    allows, asks, denies = rule(ALLOW, tool="B*"), rule(ASK, tool="Bash"), rule(DENY, tool="Ba*", reason="no shells")

    assert judge(a_policy(operator=(allows, asks)), an_ask()).action is ALLOW
    assert judge(a_policy(operator=(asks, allows)), an_ask()).action is ASK
    ruling = judge(a_policy(PermissionMode.BYPASS, operator=(allows, asks, denies)), an_ask())
    assert (ruling.action, ruling.reason) == (DENY, "no shells")


@pytest.mark.parametrize(
    ("operator", "caller", "mode", "action"),
    [
        (ALLOW, DENY, PermissionMode.ASK, DENY),
        (ALLOW, ASK, PermissionMode.ASK, ASK),
        (ALLOW, ALLOW, PermissionMode.ASK, ALLOW),
        (ASK, ALLOW, PermissionMode.ASK, ASK),
        (ASK, None, PermissionMode.BYPASS, ASK),
        (DENY, ALLOW, PermissionMode.BYPASS, DENY),
        (None, ALLOW, PermissionMode.ASK, ALLOW),
        (None, ASK, PermissionMode.BYPASS, ASK),
        (ALLOW, None, PermissionMode.READ_ONLY, DENY),
        (ALLOW, ALLOW, PermissionMode.READ_ONLY, DENY),
    ],
)
def test_callers_only_narrow_what_the_operator_said(
    operator: PermissionAction | None,
    caller: PermissionAction | None,
    mode: PermissionMode,
    action: PermissionAction,
) -> None:
    policy = a_policy(
        mode,
        operator=() if operator is None else (rule(operator, tool="*"),),
        caller=() if caller is None else (rule(caller, tool="*"),),
    )

    assert judge(policy, an_ask()).action is action


def test_a_grant_spares_a_question_for_the_same_arguments_and_no_denial() -> None:
    grants = frozenset({("Bash", canonical('{"b":1,"a":2}'))})
    same, other = an_ask(arguments_json='{ "a": 2, "b": 1 }'), an_ask(arguments_json='{"a":2}')

    assert judge(a_policy(grants=grants), same).action is ALLOW
    assert judge(a_policy(grants=grants, operator=(rule(ASK, tool="*"),)), same).action is ALLOW
    assert judge(a_policy(grants=grants), other).action is ASK
    assert judge(a_policy(grants=grants, operator=(rule(DENY, tool="*"),)), same).action is DENY
    assert judge(a_policy(PermissionMode.READ_ONLY, grants=grants), same).action is DENY


def test_tools_the_session_does_not_use_are_denied() -> None:
    assert judge(a_policy(PermissionMode.BYPASS, disallowed_tools=("Bash",)), an_ask()).action is DENY
    assert judge(a_policy(PermissionMode.BYPASS, allowed_tools=("Read",)), an_ask()).action is DENY
    both = a_policy(PermissionMode.BYPASS, allowed_tools=("Bash",), disallowed_tools=("Bash",))
    assert judge(both, an_ask()).action is DENY
    assert judge(a_policy(PermissionMode.BYPASS, allowed_tools=("Bash",)), an_ask()).action is ALLOW


@pytest.mark.parametrize(
    ("action", "command", "matches"),
    [
        (ALLOW, "npm test", True),
        (ALLOW, "npm test -- --watch", True),
        (ALLOW, "npm  'test'", True),
        (ALLOW, "npm testing", False),
        (ALLOW, "npm test && npm test -x", True),
        (ALLOW, "npm test && rm x", False),
        (ALLOW, "npm test $(rm x)", False),
        (ALLOW, "A=1 npm test", False),
        (ALLOW, "npm test # '\nrm x\n# '", False),
        (ALLOW, "npm test $'\\'' ; rm x #'", False),
        (ALLOW, "npm test > ~/.bashrc", False),
        (ALLOW, "npm test 2>&1", True),
        (ALLOW, "npm $x", False),
        (DENY, "npm \\\n test", True),
        (DENY, "npm $x", True),
        (DENY, "sudo npm test", True),
        (DENY, ">out npm test", True),
        (ALLOW, None, False),
        (DENY, "ls; npm test", True),
        (DENY, "A=1 npm test", True),
        (DENY, "echo $(npm test)", True),
        (DENY, "ls", False),
        (DENY, None, False),
    ],
)
def test_a_command_is_compared_word_by_word(action: PermissionAction, command: str | None, matches: bool) -> None:
    policy = a_policy(operator=(rule(action, command_prefix="npm test"),))

    assert (judge(policy, an_ask(command=command)).action is action) is matches


@pytest.mark.parametrize(
    ("action", "paths", "matches"),
    [
        (ALLOW, ("/srv/app/src/a",), True),
        (ALLOW, ("/srv/app/src/a", "/srv/app/b"), False),
        (ALLOW, ("/src/a",), False),
        (ALLOW, (), False),
        (DENY, ("/srv/app/b", "/srv/app/src/a"), True),
        (DENY, (), False),
    ],
)
def test_a_path_is_taken_as_seen_from_the_sessions_directory(
    action: PermissionAction, paths: tuple[str, ...], matches: bool
) -> None:
    policy = a_policy(operator=(rule(action, path="src/**"),))

    assert (judge(policy, an_ask(paths=paths)).action is action) is matches


def test_an_absolute_glob_reaches_beyond_the_sessions_directory() -> None:
    policy = a_policy(PermissionMode.BYPASS, operator=(rule(DENY, path="/etc/**"),))

    assert judge(policy, an_ask(paths=("/etc/passwd",))).action is DENY


def test_an_expression_without_a_result_denies_and_never_allows() -> None:
    allows, denies = rule(ALLOW, cel="a"), rule(DENY, cel="d")
    policy = a_policy(operator=(allows, denies), caller=(rule(ASK, cel="a"),))

    assert expressions_of(policy) == ("a", "d")
    assert judge(policy, an_ask(), {"a": True, "d": False}).action is ASK
    assert judge(a_policy(operator=(allows,)), an_ask(), {"a": True}).action is ALLOW
    assert judge(a_policy(operator=(allows,)), an_ask(), {"a": None}).action is ASK
    assert judge(policy, an_ask(), {"a": True, "d": None}).action is DENY
    assert judge(policy, an_ask(), {}).action is DENY


def test_all_conditions_of_a_rule_must_hold() -> None:
    policy = a_policy(operator=(rule(ALLOW, tool="Bash", command_prefix="ls"),))

    assert judge(policy, an_ask(command="ls")).action is ALLOW
    assert judge(policy, an_ask(tool="Sh", command="ls")).action is ASK


@pytest.mark.parametrize(
    ("arguments", "command", "paths"),
    [
        ('{"command":"ls -l"}', "ls -l", ()),
        ('{"cmd":["ls","it\'s"]}', "'ls' 'it'\\''s'", ()),
        ('{"file_path":"a","path":"b","paths":["c","a"]}', None, ("a", "b", "c")),
        ('{"command":"git","args":["push","; rm"]}', "git push ; rm", ()),
        ('{"path":""}', None, ()),
        ("", None, ()),
    ],
)
def test_what_a_tool_is_about_is_read_from_its_arguments(
    arguments: str, command: str | None, paths: tuple[str, ...]
) -> None:
    assert subject(arguments) == Subject(command, paths)


@pytest.mark.parametrize(
    "arguments",
    [
        "[1]",
        "no json",
        "\ud800",
        '{"command":7}',
        '{"command":"ls","cmd":"rm"}',
        '{"command":"rm","args":[1]}',
        '{"paths":[{"path":"a"}]}',
        '{"command":"rm","timeout":1e999}',
        '{"command":"rm \\ud800"}',
        '{"command":"rm","more":' + "[" * 100_000 + "]" * 100_000 + "}",
    ],
)
def test_arguments_that_cannot_be_read_are_denied_by_a_rule_that_denies_and_allowed_by_none(arguments: str) -> None:
    told = subject(arguments)
    ask = an_ask(command=told.command, paths=told.paths, told=told.told)

    for condition in ({"command_prefix": "rm"}, {"path": "/etc/**"}):
        assert judge(a_policy(PermissionMode.BYPASS, operator=(rule(DENY, **condition),)), ask).action is DENY
        assert judge(a_policy(operator=(rule(ALLOW, **condition),)), ask).action is ASK


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (rule(ALLOW), "no condition is set; accepted are tool, command_prefix, path and cel"),
        (rule(ALLOW, tool="x" * 257), "tool has 257 bytes; accepted are at most 256"),
        (rule(ALLOW, command_prefix="a && b"), "command_prefix is 'a && b'; accepted is the beginning of one plain"),
        (rule(ALLOW, command_prefix="ls *"), "command_prefix is 'ls *'; accepted is the beginning of one plain"),
        (rule(ALLOW, path="../x"), "path is '../x'; accepted are globs without '..'"),
        (rule(ALLOW, tool="x", reason="é" * 2049), "reason has 4098 bytes; accepted are at most 4096"),
    ],
)
def test_a_bad_rule_is_named_with_what_is_accepted(bad: PermissionRule, said: str) -> None:
    assert problem(bad).startswith(said)


RULES = st.lists(
    st.builds(rule, st.sampled_from(PermissionAction), tool=st.sampled_from(["*", "Bash", "Read"])), max_size=4
).map(tuple)


@given(operator=RULES, caller=RULES, mode=st.sampled_from(PermissionMode))
def test_what_callers_add_never_allows_more_where_the_operator_spoke(
    operator: tuple[PermissionRule, ...], caller: tuple[PermissionRule, ...], mode: PermissionMode
) -> None:
    care = {ALLOW: 0, ASK: 1, DENY: 2}
    with_caller = judge(a_policy(mode, operator=operator, caller=caller), an_ask()).action
    without = judge(a_policy(mode, operator=operator), an_ask()).action
    spoke = any(one.tool in {"*", "Bash"} for one in operator)

    assert not spoke or care[with_caller] >= care[without]
