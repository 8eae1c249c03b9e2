"""What a request must hold: each refusal names the field, what was wrong and what is accepted."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.engine.stage import Stage, engine_stage

from steprail_daemon.core.errors import StepRailError
from steprail_daemon.core.model import SECOND, StepCountRule, StopRule
from steprail_daemon.engine.facade import LOCAL, CreateSession, DeciderRequest, LimitsRequest, StartRun

pytestmark = pytest.mark.anyio


async def refused(stage: Stage, reason: str, **fields: object) -> StepRailError:
    request = {"agent": "claude", "cwd": str(stage.directory), **fields}
    with pytest.raises(StepRailError, match=reason) as error:
        await stage.engine.create_session(LOCAL, CreateSession(**request))  # type: ignore[arg-type]
    assert stage.engine.list_sessions(LOCAL) == []
    return error.value


async def test_an_unknown_agent_is_refused_and_the_known_ones_are_named(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        error = await refused(stage, "AGENT_UNKNOWN", agent="clod")
        assert "claude" in error.message


@pytest.mark.parametrize(
    ("cwd", "reason"),
    [
        ("relative", "CWD_INVALID"),
        ("/no/such/place", "CWD_INVALID"),
        ("/a\0b", "CWD_INVALID"),
        ("/", "CWD_NOT_ALLOWED"),
    ],
)
async def test_a_directory_that_cannot_be_used_is_refused(tmp_path: Path, cwd: str, reason: str) -> None:
    async with engine_stage(tmp_path) as stage:
        await refused(stage, reason, cwd=cwd)


async def test_a_file_is_no_directory_and_a_symlink_out_of_the_roots_is_not_allowed(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "way-out").symlink_to(tmp_path)
    async with engine_stage(tmp_path / "inside") as stage:
        await refused(stage, "CWD_INVALID", cwd=str(tmp_path / "file"))
        await refused(stage, "CWD_NOT_ALLOWED", cwd=str(tmp_path / "inside" / "way-out"))
        await refused(stage, "CWD_NOT_ALLOWED", cwd=str(f"{tmp_path}/inside/.."))


async def test_a_root_is_no_prefix_of_a_name(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "workshop").mkdir()
    async with engine_stage(tmp_path / "work") as stage:
        await refused(stage, "CWD_NOT_ALLOWED", cwd=str(tmp_path / "workshop"))


async def test_more_sessions_than_allowed_are_refused_until_one_is_closed(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        sessions = [(await stage.session())[0] for _ in range(4)]
        with pytest.raises(StepRailError, match="TOO_MANY_SESSIONS"):
            await stage.session()
        await stage.engine.close_session(LOCAL, sessions[0], force=False)
        await stage.session()


@pytest.mark.parametrize(
    ("fields", "reason", "names"),
    [
        ({"prompt": ""}, "PROMPT_INVALID", "empty"),
        ({"prompt": " \n"}, "PROMPT_INVALID", "empty"),
        ({"prompt": "/compact"}, "PROMPT_INVALID", "command"),
        ({"prompt": "x" * (1 << 20) + "y"}, "PROMPT_TOO_LARGE", "1048576"),
        ({"stop_rules": (StopRule("r", StepCountRule(0)),)}, "RULE_INVALID", "at_least"),
        ({"stop_rules": (StopRule("r", StepCountRule(1)),) * 65}, "RULE_INVALID", "64"),
        ({"decider": DeciderRequest(timeout_ns=631 * SECOND)}, "FIELD_INVALID", "600"),
        ({"decider": DeciderRequest(timeout_ns=0)}, "FIELD_INVALID", "more than 0"),
        ({"limits": LimitsRequest(max_steps=101)}, "FIELD_INVALID", "100"),
        ({"limits": LimitsRequest(max_steps=0)}, "FIELD_INVALID", "between 1"),
        ({"limits": LimitsRequest(hard_timeout_ns=0)}, "FIELD_INVALID", "3600"),
    ],
)
async def test_a_run_with_a_wrong_field_is_refused_and_the_session_stays_usable(
    tmp_path: Path, fields: dict[str, object], reason: str, names: str
) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, process = await stage.session()
        with pytest.raises(StepRailError, match=reason) as error:
            await stage.engine.start_run(LOCAL, StartRun(**{"session_id": session_id, "prompt": "go", **fields}))  # type: ignore[arg-type]
        assert names in error.value.message
        assert stage.engine.list_runs(LOCAL, "") == []
        await stage.engine.start_run(LOCAL, StartRun(session_id=session_id, prompt="go"))
        assert process.prompts() == ["go"]


async def test_unknown_ids_are_not_found(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        with pytest.raises(StepRailError, match="SESSION_NOT_FOUND"):
            stage.engine.get_session(LOCAL, "ses_x")
        with pytest.raises(StepRailError, match="SESSION_NOT_FOUND"):
            await stage.engine.start_run(LOCAL, StartRun(session_id="ses_x", prompt="go"))
        with pytest.raises(StepRailError, match="RUN_NOT_FOUND"):
            stage.engine.get_run(LOCAL, "run_x")


async def test_a_cursor_of_another_epoch_or_ahead_is_refused_with_where_things_are(tmp_path: Path) -> None:
    async with engine_stage(tmp_path) as stage:
        session_id, _ = await stage.session()
        epoch = stage.store.epoch
        last = stage.engine.get_session(LOCAL, session_id).last_seq
        for after, of in ((1, "other"), (last + 1, epoch)):
            with pytest.raises(StepRailError, match="CURSOR_INVALID") as error:
                stage.engine.watch_session(LOCAL, session_id, after, of)
            assert error.value.metadata == {"earliest_seq": "1", "last_seq": str(last), "epoch": epoch}
        stage.engine.watch_session(LOCAL, session_id, last, epoch).close()
