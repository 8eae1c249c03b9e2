"""What the permission modes allow."""

import pytest

from steprail_daemon.core.model import PermissionMode, ToolKind
from steprail_daemon.core.policy import judge

ALLOWED: dict[PermissionMode, set[ToolKind]] = {
    PermissionMode.ASK: set(),
    PermissionMode.ACCEPT_EDITS: {ToolKind.EDIT},
    PermissionMode.READ_ONLY: {ToolKind.READ, ToolKind.SEARCH},
    PermissionMode.BYPASS: set(ToolKind),
}


@pytest.mark.parametrize("mode", PermissionMode, ids=lambda mode: mode.name)
def test_a_mode_allows_these_kinds_of_tools_and_denies_all_others(mode: PermissionMode) -> None:
    assert {kind for kind in ToolKind if judge(mode, kind).allow} == ALLOWED[mode]


@pytest.mark.parametrize("mode", PermissionMode, ids=lambda mode: mode.name)
def test_every_ruling_names_the_mode(mode: PermissionMode) -> None:
    assert all(mode.name in judge(mode, kind).reason for kind in ToolKind)
