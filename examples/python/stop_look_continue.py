"""Stop a run after its first step, look at what it did, and let it go on.

    steprail serve                                   # in a directory above the one that the agent is to work in
    python stop_look_continue.py "Look around" --agent scripted --cwd some/directory

The first run ends STOPPED: the agent waits, and its model is not asked anything. `continue_run` makes a second run on
the same conversation, here without the rule that stopped the first one.

Exit status: 0 if the last run completed, 1 if not, with one sentence on stderr.
"""

from __future__ import annotations

import argparse
import asyncio
import sys

from steprail import StepRailError
from steprail.client import Client, steps
from steprail.v1 import events_pb2, runs_pb2, steps_pb2


async def main(options: argparse.Namespace) -> int:
    """Stop, look, continue; gives the exit status."""
    async with Client(options.address) as client:
        run = client.run(
            options.prompt,
            agent=options.agent,
            cwd=options.cwd,
            stop_when=[steps(1)],
            permissions=lambda _: options.allow,
            on_exit="stop",  # Ctrl-C stops the run; the default leaves it to itself
        )
        stopped = await run
        if stopped.state != events_pb2.RUN_STATE_STOPPED:
            return report(stopped)  # it was done before its first step, or it failed
        show(await client.get_step(stopped.run_id, 1))
        print(f"stopped: {stopped.stop_reason.reason}")
        # This is the place to look at the files, to run tests, or to ask somebody. The stopped run waits for ever.
        return report(await run.continue_run(options.then, stop_when=[]))


def show(step: steps_pb2.Step) -> None:
    """Print what the model said and did in a step, and what came of it."""
    print(f"step {step.number}: {line(step.text.value or step.thought.value)}")
    results = {result.call_id: result for result in step.tool_results}
    for call in step.tool_calls:
        result = results[call.call_id]
        print(f"  > {call.tool} {line(call.arguments_json.value)}")
        print(f"  < {line(result.error.value or result.output.value)}")


def report(run: runs_pb2.Run) -> int:
    """Print how a run ended; gives the exit status."""
    print(f"{events_pb2.RunState.Name(run.state)} after {run.step_count} steps: {line(run.text)}")
    if run.HasField("failure"):
        print(f"stop_look_continue: {run.failure.reason}: {line(run.failure.message)}", file=sys.stderr)
    return 0 if run.state == events_pb2.RUN_STATE_COMPLETED else 1


def line(text: str) -> str:
    """Give what fits on one line, without what could control the terminal: a tool may have given it."""
    printable = "".join(letter if letter.isprintable() else " " for letter in text.strip())
    return printable if len(printable) <= 100 else f"{printable[:97]}..."


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Stop a run after its first step, look at it, and let it go on.")
    parser.add_argument("prompt", help="what the agent is to do")
    parser.add_argument("--then", metavar="TEXT", help="what to say when it goes on (default: just go on)")
    parser.add_argument("--agent", default="claude", help="an agent of the daemon's configuration (default: claude)")
    parser.add_argument("--cwd", default=".", help="directory that the agent works in (default: this one)")
    parser.add_argument("--address", help="where the daemon listens (default: $STEPRAIL_ADDRESS, or its usual socket)")
    parser.add_argument("--allow", action="store_true", help="allow what the agent asks permission for; else deny it")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main(arguments())))
    except StepRailError as error:
        sys.exit(f"stop_look_continue: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
