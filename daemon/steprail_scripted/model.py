"""What stands in for a model: the replies it gives, and what the agent tells it in return."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from steprail_scripted.faults import Fault


class Call(NamedTuple):
    """One tool call of a reply."""

    tool: str
    args: dict[str, Any]


class Usage(NamedTuple):
    """Tokens of one reply; `None` is unknown.

    `output_tokens` contains `reasoning_tokens`, and `input_tokens` contains `cached_input_tokens`.
    """

    input_tokens: int
    output_tokens: int
    cached_input_tokens: int | None = None
    reasoning_tokens: int | None = None
    model: str | None = None
    cost_micro_usd: int | None = None

    @property
    def total(self) -> int:
        """What the provider would bill: input and output."""
        return self.input_tokens + self.output_tokens


class ProviderError(NamedTuple):
    """A reply that is no answer: the provider refused or failed. `status` is `None` for a network failure.

    `code`, `error_type` and `recoverable` take the place of what the status would give.
    """

    message: str
    status: int | None = None
    retry_after: float | None = None
    times: int = 1
    code: str | None = None
    error_type: str | None = None
    recoverable: bool | None = None


class Reply(NamedTuple):
    """One answer of the model: text alone ends the turn, calls make a step.

    `usage` of `None` with `computed_usage` off means that the provider reports none.
    """

    text: str = ""
    calls: tuple[Call, ...] = ()
    reflection: str = ""
    delay: float = 0.0
    hang: bool = False
    usage: Usage | None = None
    computed_usage: bool = True
    error: ProviderError | None = None
    faults: tuple[Fault, ...] = ()


class ToolResult(NamedTuple):
    """What a tool call came to; `kind` tells failures apart: operational, authorization, validation."""

    tool: str
    success: bool
    output: str | None = None
    error: str | None = None
    kind: str | None = None
    exit_code: int | None = None

    def on_the_wire(self) -> dict[str, Any]:
        """Shape it as `stepEnd` carries it."""
        optional = {"kind": self.kind, "error": self.error, "output": self.output, "exitCode": self.exit_code}
        return {
            "tool": self.tool,
            "success": self.success,
            **{key: value for key, value in optional.items() if value is not None},
        }

    @property
    def text(self) -> str:
        """What the model would be told."""
        return self.output if self.output is not None else (self.error or "")


class Prompt(NamedTuple):
    """One prompt as the host sent it; `text` contains the selection, if one came along."""

    text: str
    files: tuple[str, ...] = ()
    images: int = 0
    host_stops: bool = False


class Source(Protocol):
    """Where the replies of one turn come from."""

    def next_reply(self, results: Sequence[ToolResult]) -> Reply:
        """Give the next reply, told the results of the calls of the one before."""
        ...
