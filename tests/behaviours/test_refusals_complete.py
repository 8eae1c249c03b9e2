"""Every reason that the API promises is produced over the wire by a case, or stands here with why it cannot be yet."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.behaviours import failed_runs, refused_in_need, refused_requests, refused_states

ROOT = Path(__file__).resolve().parents[2]
PROTO = (ROOT / "protos/steprail/v1/errors.proto").read_text()
SOURCES = [
    path
    for path in sorted((ROOT / "daemon/steprail_daemon").rglob("*.py"))
    # The tables of all reasons, and a list in a comment.
    if path.relative_to(ROOT / "daemon/steprail_daemon").as_posix() not in ("service/errors.py", "core/errors.py")
]

#: Reasons of refused calls that nothing produces yet, and why that is so.
NOT_YET = {
    "BUDGET_NOT_FOUND": "Budgets are not served: every call of BudgetService is UNIMPLEMENTED.",
    "BUDGET_EXHAUSTED": "Likewise; a configuration cannot name a budget.",
}

REFUSED = [
    case
    for table in (refused_requests.CASES, refused_states.CASES, refused_in_need.REFUSED, refused_in_need.REFUSED_TO_ALL)
    for case in table.values()
]
FAILED = [
    case
    for table in (failed_runs.CASES, refused_in_need.FAILED, refused_in_need.FAILED_FOR_ALL)
    for case in table.values()
]


def promised_refusals() -> dict[str, str]:
    """Read the list of refused calls: reasons and their status codes."""
    found: dict[str, str] = {}
    code = ""
    for line in PROTO[PROTO.index("// REFUSED CALLS") : PROTO.index("// Any call can be refused")].splitlines():
        if matched := re.match(r"//   ([A-Z_]+)( |$)", line):
            code = matched[1]
        elif matched := re.match(r"//     ([A-Z_]+) ", line):
            found[matched[1]] = code
    return found


def promised_metadata() -> dict[str, set[str]]:
    """Read which metadata the list of refused calls names."""
    part = PROTO[PROTO.index("// REFUSED CALLS") : PROTO.index("// Any call can be refused")]
    return {
        reason: set(keys.split(", "))
        for reason, keys in re.findall(r"^//     ([A-Z_]+) .* Metadata: ([a-z_, ]+)\.$", part, re.MULTILINE)
    }


def promised_failures() -> set[str]:
    """Read the list of failed runs."""
    part = PROTO[PROTO.index("// FAILED RUNS") : PROTO.index("// REQUEST IDS")]
    return set(re.findall(r"^//   ([A-Z_]+) ", part, re.MULTILINE))


def test_every_reason_of_a_refused_call_has_a_case_or_a_word_on_why_not() -> None:
    promised = promised_refusals()
    assert len(promised) == 39
    assert {case.reason for case in REFUSED} == promised.keys() - NOT_YET.keys()
    assert NOT_YET.keys() <= promised.keys()
    assert {case.reason: case.code.name for case in REFUSED}.items() <= promised.items()


def test_every_case_holds_its_reason_to_the_metadata_that_are_promised() -> None:
    promised = promised_metadata()
    assert {"SESSION_BUSY", "PROMPT_TOO_LARGE", "CURSOR_INVALID"} < promised.keys()
    assert [case for case in REFUSED if not promised.get(case.reason, set()) <= case.metadata] == []


def test_every_reason_of_a_failed_run_has_a_case() -> None:
    promised = promised_failures()
    assert len(promised) == 19
    assert {case.reason for case in FAILED} == promised


@pytest.mark.parametrize("reason", NOT_YET)
def test_what_is_not_produced_yet_is_nowhere_in_the_daemon(reason: str) -> None:
    assert [path.name for path in SOURCES if f'"{reason}"' in path.read_text()] == []
