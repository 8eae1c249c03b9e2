"""Let a person review each step of a run before the agent may go on.

    steprail serve                                   # in a directory above the one that the agent is to work in
    python review_steps.py "Fix the failing test" --agent scripted --cwd some/directory

After each step you say yes, no, or, where the agent can take it, something that its model is told with the next step.
What the agent asks permission for, and its questions, are put to you too. If you do not answer within the daemon's time
(`limits.decision_timeout`, ten minutes by default) the run stops; so it does on Ctrl-C. Without a terminal each answer
is no, and it stops after the first step; `--answer` answers without asking.
Exit status: 0 if the run completed, 10 if it was stopped, 1 if it failed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys

from steprail import StepRailError
from steprail.client import Client
from steprail.v1 import decisions_pb2, errors_pb2, events_pb2, steps_pb2

ANSWERS = {"y": True, "yes": True, "n": False, "no": False}
STATUS = {events_pb2.RUN_STATE_COMPLETED: 0, events_pb2.RUN_STATE_STOPPED: 10}


class Reviewer:
    """Answers what a run asks: a person, or `always` the same. `guides`: whether the agent takes texts."""

    def __init__(self, client: Client, always: str | None, guides: bool) -> None:
        self.client = client
        self.always = always
        self.guides = guides
        self.turn = asyncio.Lock()  # an agent may ask for two things at once; a person is asked one after the other

    async def decide(self, step: steps_pb2.Step) -> bool | str:
        """Say after a step whether the run goes on. A text goes on too, and is told to the model."""
        said = [f"step {step.number}: {step.text.value or step.thought.value}"]
        said += [f"  > {call.tool} {await self.whole(call.arguments_json)}" for call in step.tool_calls]
        said += [f"  < {result.error.value or result.output.value}" for result in step.tool_results]
        return await self.ask("\n".join(said), "Go on?", texts=self.guides)

    async def permit(self, asked: decisions_pb2.Permission) -> bool:
        """Say whether the agent may do what it asks for. All of that is shown: what is not seen cannot be judged."""
        return await self.ask(f"{asked.tool} {await self.whole(asked.arguments_json)}", "Allow it?") is True

    async def reply(self, asked: decisions_pb2.Question) -> dict[str, str] | None:
        """Answer each item of a question by a text, or by what an option is called; None declines."""
        answers: dict[str, str] = {}
        for item in asked.items:
            options = [f"  {option.label}: {option.description}" for option in item.options]
            answer = await self.ask("\n".join([item.text, *options]), "Your answer?", texts=True)
            if not isinstance(answer, str):
                return None
            answers[item.item_id] = answer
        return answers

    async def ask(self, about: str, question: str, *, texts: bool = False) -> bool | str:
        """Show something and give the answer to it. The end of what is typed is a no."""
        async with self.turn:
            print(f"\n{printable(about)}")
            accepted = "y, n or a text" if texts else "y or n"
            answer = self.always or ""
            while answer.lower() not in ANSWERS and not (answer and texts):
                answer = await typed(f"{question} ({accepted}) ")
            return ANSWERS.get(answer.lower(), answer)

    async def whole(self, text: errors_pb2.Text) -> str:
        """Give a text, also one that is too large to be sent with the rest."""
        return (await self.client.read_blob(text.blob_id)).decode() if text.blob_id else text.value


async def typed(question: str) -> str:
    """Give the line that is typed. Cancelled, it no longer waits for one, as `input` on a thread would."""
    print(question, end="", flush=True)
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(sys.stdin, readable.set)
    try:
        await readable.wait()
        line = os.read(sys.stdin.fileno(), 4096)
        return line.decode(errors="replace").strip() if line else "no"
    finally:
        loop.remove_reader(sys.stdin)


def printable(text: str) -> str:
    """Give a text without what could control the terminal, and so hide what is asked for."""
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "?" for letter in text.rstrip())


async def main(options: argparse.Namespace) -> int:
    """Run with a reviewer; gives the exit status."""
    async with Client(options.address) as client:
        agents = {agent.name: agent for agent in await client.list_agents()}
        guides = options.agent in agents and agents[options.agent].capabilities.guidance
        always = options.answer
        if not always and not sys.stdin.isatty():
            always = "no"
        reviewer = Reviewer(client, always, guides)
        run = await client.run(
            options.prompt,
            agent=options.agent,
            cwd=options.cwd,
            decide=reviewer.decide,
            permissions=reviewer.permit,
            questions=reviewer.reply,
            on_exit="stop",
        )
    why = run.failure.message or run.stop_reason.reason or run.text
    print(printable(f"\n{events_pb2.RunState.Name(run.state)} after {run.step_count} steps: {why}"))
    return STATUS.get(run.state, 1)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Let a person review each step of a run.")
    parser.add_argument("prompt", help="what the agent is to do")
    parser.add_argument("--answer", choices=["yes", "no"], help="answer so, without asking")
    parser.add_argument("--agent", default="claude", help="an agent of the daemon's configuration (default: claude)")
    parser.add_argument("--cwd", default=".", help="directory that the agent works in (default: this one)")
    parser.add_argument("--address", help="where the daemon listens (default: $STEPRAIL_ADDRESS, or its usual socket)")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main(arguments())))
    except StepRailError as error:
        sys.exit(f"review_steps: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
