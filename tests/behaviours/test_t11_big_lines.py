"""T11, big lines and strange ones: what is within the limit arrives whole, what is above is one typed error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.behaviours.stage import (
    COMPLETED,
    CONTINUE,
    FAILED,
    STOPPED,
    Stage,
    bodies,
    client_decides,
    command,
    daemon_of_its_own,
    play,
    read,
    says,
    script,
)

from steprail.client import steps
from steprail.v1 import runs_pb2

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(90)]

KIB, MIB = 1 << 10, 1 << 20
#: No message of the API is larger.
MESSAGE_LIMIT = MIB
#: What the worker may use at its peak beyond what it uses idle, in multiples of the longest line.
COPIES = 6


def peak_mib(pid: int) -> float:
    """Give the most memory that a process ever had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


async def largest_message(stage: Stage, run_id: str) -> int:
    """Give the size of the largest message that a watch of a run sends."""
    call = stage.runs.WatchRun(runs_pb2.WatchRunRequest(run_id=run_id), timeout=60)
    return max([message.ByteSize() async for message in call])


@pytest.mark.parametrize("size", [64 * KIB + 1, MIB + 1, 16 * MIB])
async def test_a_result_in_one_big_line_arrives_whole_and_no_message_is_too_large(stage: Stage, size: int) -> None:
    """T11: one JSON line with a tool's output of this size; the step gives its beginning, ReadBlob all of it."""
    session_id = await stage.session("claude")
    run = await stage.run(session_id, json.dumps({"steps": 2, "output_bytes": size}), stop_rules=[steps(1)])
    assert run.state == STOPPED, run.failure
    step = await stage.client.get_step(run.run_id, 1)
    output = step.tool_results[0].output
    assert (output.full_size, len(output.value) < size) == (size, True)
    assert await stage.client.read_blob(output.blob_id) == b"x" * size
    assert await largest_message(stage, run.run_id) < MESSAGE_LIMIT


@pytest.mark.parametrize("size", [64 * KIB + 1, MIB + 1, 16 * MIB])
async def test_a_notification_in_one_big_line_is_parsed_and_so_is_what_follows(stage: Stage, size: int) -> None:
    """T11: the same in the other protocol, of exactly so many bytes."""
    big = [{"at": "model", "json_line_bytes": size}, {"at": "step", "json_line_bytes": size}]
    run = await stage.run(await stage.session(), script(read(faults=big), says("whole")))
    assert (run.state, run.step_count, run.text) == (COMPLETED, 1, "whole")
    assert await largest_message(stage, run.run_id) < MESSAGE_LIMIT


async def test_a_line_of_the_limit_passes_and_one_byte_more_is_one_typed_error() -> None:
    """T11: 64 MiB, in bounded memory."""
    limit = 64 * MIB
    with daemon_of_its_own() as daemon:
        await daemon.start()
        async with play(daemon) as stage:
            session_id = await stage.session()
            idle = peak_mib(daemon.worker_pid())
            # The end of the line is not counted.
            most = [{"at": "model", "json_line_bytes": limit + 1}]
            run = await stage.run(session_id, script(says("whole", faults=most)))
            assert (run.state, run.text) == (COMPLETED, "whole"), run.failure
            over = [{"at": "model", "json_line_bytes": limit + 2}]
            run = await stage.run(session_id, script(says("never", faults=over)))
            assert (run.state, run.failure.reason) == (FAILED, "PROTOCOL_ERROR")
            assert str(limit) in run.failure.message
            events = await stage.events(run.run_id)
            assert len(bodies(events, "agent_end")) == 1
            assert peak_mib(daemon.worker_pid()) - idle < COPIES * limit / MIB
            assert (await stage.run(session_id, script(says("again")))).state == COMPLETED


async def test_a_small_limit_holds_for_the_other_protocol_too() -> None:
    """T11: a configured limit, and a line of that protocol above it."""
    with daemon_of_its_own('[limits]\nline_bytes = "64KiB"\n') as daemon:
        await daemon.start()
        async with play(daemon) as stage:
            session_id = await stage.session("claude")
            does = {"steps": 2, "long_line_in_step": 1, "long_line_bytes": 64 * KIB}
            run = await stage.run(session_id, json.dumps(does))
            assert (run.state, run.failure.reason) == (FAILED, "PROTOCOL_ERROR")
            assert (await stage.run(session_id, '{"steps": 1}')).state == COMPLETED


async def test_characters_of_several_bytes_survive_wherever_a_read_cuts_them(stage: Stage) -> None:
    """T11: split multibyte; 1 MiB of three-byte characters at an odd offset, so that many reads end within one."""
    text = "\N{EURO SIGN}" * 350_000
    (stage.workspace / "money.txt").write_text(f".{text}")
    run = await stage.run(await stage.session(), script(command("cat money.txt"), says(text[:50_000])))
    assert (run.state, run.text_truncated) == (COMPLETED, True)
    # Cut at 64 KiB, and there not within a character either.
    assert run.text == text[: 64 * KIB // 3]
    output = (await stage.client.get_step(run.run_id, 1)).tool_results[0].output
    assert text in (await stage.client.read_blob(output.blob_id)).decode()
    assert "\N{REPLACEMENT CHARACTER}" not in output.value
    assert len(output.value) > 10_000


async def test_a_lone_surrogate_in_the_boundarys_line_does_not_make_the_agent_wait_for_ever(stage: Stage) -> None:
    """T11: the line that the agent waits at, in both protocols; it is stored as U+FFFD."""
    for agent, prompt in (
        ("scripted", script(read(text="half \ud83d"), says("half \ud83d"))),
        ("claude", json.dumps({"steps": 1, "lone_surrogate": True})),
    ):
        session_id = await stage.session(agent)
        started = await stage.client.start_run(session_id, prompt, decider=client_decides())
        pending = (await stage.asked(started.run_id)).pending_decision
        await stage.client.submit_decision(started.run_id, pending.step_id, CONTINUE)
        run = await stage.ended(started.run_id)
        assert (run.state, run.step_count) == (COMPLETED, 1), run.failure
        if agent == "scripted":
            assert run.text == "half \N{REPLACEMENT CHARACTER}"


async def test_noise_on_stdout_is_skipped_whatever_its_size(stage: Stage) -> None:
    """T11: noise lines between the protocol's, up to 1 MiB, and text that begins like JSON and is not."""
    noise = [
        {"at": "model", "print": "Debugger listening on ws://127.0.0.1:9229"},
        {"at": "model", "line_bytes": MIB},
        {"at": "step", "print": ""},
        {"at": "tool_end", "print": "(node:1) Warning: something is deprecated"},
    ]
    run = await stage.run(await stage.session(), script(read(faults=noise), says("heard all the same")))
    assert (run.state, run.step_count, run.text) == (COMPLETED, 1, "heard all the same")
    run = await stage.run(await stage.session("claude"), json.dumps({"steps": 2, "noise_lines": 1_000}))
    assert (run.state, run.step_count) == (COMPLETED, 2)


async def test_a_line_that_begins_like_a_message_and_is_none_is_an_error_and_never_noise(stage: Stage) -> None:
    """T11: half a message is not skipped, since it may be the one that the agent waits at."""
    session_id = await stage.session()
    broken = [{"at": "model", "print": '{"jsonrpc":"2.0","method":"autohand.stepEnd","params":{'}]
    run = await stage.run(session_id, script(says("never", faults=broken)))
    assert (run.state, run.failure.reason) == (FAILED, "PROTOCOL_ERROR")
    assert (await stage.run(session_id, script(says("again")))).state == COMPLETED
