"""The CLI's guards against a model that loops without thinking."""

from collections import Counter
from collections.abc import Sequence

from steprail_scripted.model import Reply, ToolResult

THOUGHT_LENGTH = 50
EMPTY_LIMIT = 3
SAME_CALLS_LIMIT = 6
SAME_RESULTS_LIMIT = 3


class Guards:
    """Decides which replies are refused. Once tools are off, the next reply is the answer, whatever it calls."""

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self._had_step = False
        self._refusals = 0
        self._empty = 0
        self._calls: Counter[str] = Counter()
        self._results: Counter[str] = Counter()
        self.tools_off = False

    def refuses(self, reply: Reply) -> bool:
        """Refuse calls after a step without a thought on it: once with another try, then tools are off."""
        if not self._enabled:
            return False
        if self._calls[_key(reply)] >= SAME_CALLS_LIMIT:
            self.tools_off = True
            return True
        if not self._had_step or reply.reflection or len(reply.text) > THOUGHT_LENGTH:
            self._refusals = 0
            return False
        self._refusals += 1
        self.tools_off = self._refusals > 1
        return True

    def completed(self, reply: Reply, results: Sequence[ToolResult]) -> None:
        """Take note of a step; the same calls with the same results three times turn the tools off."""
        self._had_step = True
        self._calls[_key(reply)] += 1
        both = _key(reply) + "".join(result.text for result in results)
        self._results[both] += 1
        if self._enabled and self._results[both] >= SAME_RESULTS_LIMIT:
            self.tools_off = True

    def is_empty(self, reply: Reply) -> bool:
        """Say whether an answer is empty and the model is asked once more: three empty ones end the turn."""
        if not self._enabled or reply.text:
            return False
        self._empty += 1
        return self._empty < EMPTY_LIMIT


def _key(reply: Reply) -> str:
    return repr([(call.tool, call.args) for call in reply.calls])
