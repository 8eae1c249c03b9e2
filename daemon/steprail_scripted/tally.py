"""Token counts as the CLI reports them, its double counting included, and the figures of replies that state none."""

from collections.abc import Iterable

from steprail_scripted.model import Reply, Usage

CHARACTERS_PER_TOKEN = 4
INSTRUCTION_TOKENS = 1_200
"""What a system prompt with tool descriptions would take."""


def tokens_of(text: str) -> int:
    """Estimate the tokens of a text by its length."""
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def usage_by_size(context: str, known_before: int, reply: Reply, model: str) -> Usage:
    """Make up the usage of a reply from text sizes: no tokenizer is involved.

    Args:
        context: everything the model would be sent.
        known_before: characters of it that the previous request held, which a provider would have cached.
        reply: the reply.
        model: the model's name.
    """
    said = reply.text + reply.reflection + "".join(f"{call.tool}{call.args}" for call in reply.calls)
    cached = INSTRUCTION_TOKENS + known_before // CHARACTERS_PER_TOKEN if known_before else 0
    read = INSTRUCTION_TOKENS + tokens_of(context)
    return Usage(
        input_tokens=read,
        cached_input_tokens=min(cached, read),
        output_tokens=tokens_of(said),
        reasoning_tokens=0,
        model=model,
    )


def sum_of(usages: Iterable[Usage | None]) -> Usage | None:
    """Add usages up. What one of them does not know is unknown in the sum; of none at all the sum is `None`."""
    replies = list(usages)
    parts = [usage for usage in replies if usage is not None]
    if not parts or len(parts) < len(replies):
        return None
    return Usage(
        input_tokens=sum(part.input_tokens for part in parts),
        output_tokens=sum(part.output_tokens for part in parts),
        cached_input_tokens=_sum([part.cached_input_tokens for part in parts]),
        reasoning_tokens=_sum([part.reasoning_tokens for part in parts]),
        model=parts[-1].model,
        cost_micro_usd=_sum([part.cost_micro_usd for part in parts]),
    )


def _sum(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


class TurnTally:
    """What one turn used so far: `calls` of the model, and of each answer its usage, `None` if it stated none."""

    def __init__(self) -> None:
        self.calls = 0
        self.usages: list[Usage | None] = []
        self._step_from = 0

    @property
    def total(self) -> int:
        """Tokens of the turn, as far as they are known."""
        return sum(usage.total for usage in self.usages if usage is not None)

    def take_step(self) -> Usage | None:
        """Give what was used since the last step ended."""
        since, self._step_from = self.usages[self._step_from :], len(self.usages)
        return sum_of(since)


class SessionTally:
    """Totals of a process. A reset does not touch them; a new process starts at nothing, also with an old session."""

    def __init__(self) -> None:
        self._total = 0
        self._last_turn = 0
        self._available = True

    def close_turn(self, turn: TurnTally) -> int:
        """Take a turn in and give the number that the CLI reports: the total with this turn, and this turn again."""
        if turn.calls and not any(turn.usages):
            self._available = False
        self._total += turn.total
        self._last_turn = turn.total
        return self._total + turn.total

    def cut_off(self, turn: TurnTally) -> int:
        """Give the number for a turn that a shutdown cut off inside a tool: it is counted once."""
        return self._total + turn.total

    def repeat(self) -> int:
        """Give the number for a slash command: it repeats the share of the last turn."""
        return self._total + self._last_turn

    @property
    def status(self) -> str:
        """Whether every turn so far came with usage."""
        return "actual" if self._available else "unavailable"
