"""The lines that Claude Code writes with `--output-format stream-json`, as far as they are read here.

Shapes as seen from version 2.1.332 (and 2.1.197, which lacks some fields). Each line is one JSON object with a `type`,
which is not always its first member. Unknown members are skipped; what has no shape here is kept as text by the codec.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from steprail_daemon.drivers.framing import mended

_EMPTY_OBJECT: Final = Raw(b"{}")


class _Wire(msgspec.Struct, gc=False):
    pass


class _Line(_Wire, tag_field="type"):
    pass


class TokenDetails(_Wire):
    """What the output tokens consist of."""

    thinking_tokens: int | None = None


class MessageUsage(_Wire):
    """Usage as the Messages API counts it: `input_tokens` is without what went through the cache."""

    input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens: int | None = None
    output_tokens_details: TokenDetails | None = None


class ModelUsage(_Wire, rename="camel"):
    """Usage of one model as the CLI sums it up."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    thinking_tokens: int | None = None
    cost_usd: float | None = msgspec.field(default=None, name="costUSD")


class AssistantBlock(_Wire):
    """A content block of the model's message; which members are set depends on `type`."""

    type: str
    text: str = ""
    thinking: str = ""
    id: str = ""
    name: str = ""
    input: Raw = _EMPTY_OBJECT


class AssistantMessage(_Wire):
    """A message of the model, or the part of it that one line carries."""

    id: str
    content: list[AssistantBlock]
    model: str = ""
    stop_reason: str | None = None
    usage: MessageUsage | None = None


class AssistantLine(_Line, tag="assistant"):
    """One content block of a message. `error` is set where the CLI wrote the text itself, to show a failure."""

    message: AssistantMessage
    parent_tool_use_id: str | None = None
    agent_id: str | None = None
    uuid: str = ""
    error: str | None = None


class ResultPart(_Wire):
    """A part of a tool's result."""

    type: str
    text: str = ""


class UserBlock(_Wire):
    """A content block of a message to the model: the result of a tool, or text."""

    type: str
    tool_use_id: str = ""
    content: str | list[ResultPart] | None = None
    is_error: bool | None = None
    text: str = ""


class UserMessage(_Wire):
    """A message to the model."""

    content: str | list[UserBlock]


class ResultMeta(_Wire):
    """What the CLI notes about one tool result. `non_execution_kind` says why the tool's own result is missing."""

    id: str
    non_execution_kind: str | None = None


class UserLine(_Line, tag="user"):
    """Results of tools, or a text that the CLI put into the conversation."""

    message: UserMessage
    parent_tool_use_id: str | None = None
    agent_id: str | None = None
    tool_result_meta: list[ResultMeta] | None = None
    #: The result as the tool itself gave it, of another shape for each tool.
    tool_use_result: Raw = _EMPTY_OBJECT


class Delta(_Wire):
    """What a stream event adds."""

    type: str = ""
    text: str = ""
    thinking: str = ""
    stop_reason: str | None = None


class StreamEvent(_Wire):
    """One event of the Messages API's stream; which members are set depends on `type`."""

    type: str
    delta: Delta | None = None
    message: AssistantMessage | None = None
    usage: MessageUsage | None = None


class StreamEventLine(_Line, tag="stream_event"):
    """A part of a message while the model writes it; only with `--include-partial-messages`."""

    event: StreamEvent
    parent_tool_use_id: str | None = None


class Compaction(_Wire):
    """Tokens of the conversation after it was summed up."""

    post_tokens: int | None = None


class SystemLine(_Line, tag="system"):
    """News of the CLI itself; which members are set depends on `subtype`.

    `init`: the model. `api_retry`: the five from `attempt` on. `task_...`: a sub-agent or a shell, `task_id`, that does
    the call `tool_use_id`. `status`: a summary begins (`status` is `compacting`) or ended (`compact_result`).
    """

    subtype: str
    session_id: str = ""
    model: str = ""
    status: str | None = None
    compact_result: str | None = None
    compact_metadata: Compaction | None = None
    task_id: str = ""
    task_type: str = ""
    tool_use_id: str | None = None
    description: str = ""
    attempt: int | None = None
    max_retries: int | None = None
    retry_delay_ms: float | None = None
    error_status: int | None = None
    error: str | None = None


class HookCall(_Wire):
    """A tool call of the batch."""

    tool_use_id: str


class BatchInput(_Wire):
    """Input of the `PostToolBatch` hook. `agent_id` is set for a sub-agent's batch."""

    agent_id: str | None = None
    tool_calls: list[HookCall] = []


class HookCallback(_Wire, tag_field="subtype", tag="hook_callback"):
    """A hook ran; its input is read as that of `PostToolBatch`, the only one that is asked for."""

    callback_id: str = ""
    input: BatchInput = msgspec.field(default_factory=BatchInput)


class CanUseTool(_Wire, tag_field="subtype", tag="can_use_tool"):
    """May a tool be used with this input?"""

    tool_name: str = ""
    tool_use_id: str = ""
    input: Raw = _EMPTY_OBJECT
    agent_id: str | None = None


class ControlRequestLine(_Line, tag="control_request"):
    """A question of the CLI; it waits for the answer that names `request_id`."""

    request_id: str
    request: HookCallback | CanUseTool


class OddRequest(_Wire):
    """A question of another kind, or a hook's with another input."""

    subtype: str
    callback_id: str = ""


class OddRequestLine(_Wire):
    """A question that has no shape above but can be answered. `problem` says what is odd about it."""

    request_id: str
    request: OddRequest
    problem: str = ""


class ControlResponse(_Wire):
    """The CLI's answer to a request of ours."""

    subtype: str
    request_id: str
    response: Raw = _EMPTY_OBJECT
    error: str = ""


class ControlResponseLine(_Line, tag="control_response"):
    """An answer of the CLI."""

    response: ControlResponse


class ControlCancelLine(_Line, tag="control_cancel_request"):
    """The CLI no longer wants an answer to its request."""

    request_id: str


class CommandLifecycleLine(_Line, tag="command_lifecycle"):
    """What became of a user line of ours: queued, started, completed, cancelled. Not in 2.1.197."""

    command_uuid: str
    state: str
    session_id: str = ""


class RateLimitInfo(_Wire, rename="camel"):
    """Of a limit of the account. `resets_at` is in Unix seconds."""

    status: str = ""
    resets_at: float | None = None
    rate_limit_type: str | None = None


class RateLimitLine(_Line, tag="rate_limit_event"):
    """How an account stands with a limit; only with a claude.ai login."""

    rate_limit_info: RateLimitInfo


class KeepAliveLine(_Line, tag="keep_alive"):
    """Nothing but a sign of life."""


class Origin(_Wire):
    """What a turn was started by, where it was not a prompt."""

    kind: str = ""


class ResultLine(_Line, tag="result"):
    """The end of a turn. `model_usage` is the sum over the whole session, restored by a resume."""

    subtype: str
    is_error: bool = False
    terminal_reason: str = ""
    stop_reason: str | None = None
    result: str | None = None
    errors: list[Any] = []
    api_error_status: int | None = None
    usage: MessageUsage | None = None
    model_usage: dict[str, ModelUsage] | None = msgspec.field(default=None, name="modelUsage")
    model_usage_since_last_result: dict[str, ModelUsage] | UnsetType | None = UNSET
    origin: Origin | None = None


Line = (
    AssistantLine
    | UserLine
    | StreamEventLine
    | SystemLine
    | ControlRequestLine
    | ControlResponseLine
    | ControlCancelLine
    | CommandLifecycleLine
    | RateLimitLine
    | KeepAliveLine
    | ResultLine
)


class InitializeAnswer(_Wire):
    """Answer to `initialize`. The two `hook` members and the version are not in 2.1.197."""

    claude_code_version: str = ""
    hooks_applied: bool = False
    hook_on_failure_supported: bool = False


class _SessionSums(_Wire):
    model_usage: dict[str, ModelUsage]


class _UsageAnswer(_Wire):
    session: _SessionSums


class _ModelAnswer(_Wire):
    model: str = ""


class UnknownLine(msgspec.Struct, frozen=True):
    """A line without a shape here. `vendor_type` is its `type`, and its `subtype` after a slash if it has one."""

    vendor_type: str


class UnreadableLine(msgspec.Struct, frozen=True):
    """A line that is no JSON, or one on which the protocol hangs and which has another shape than it must have."""

    problem: str


class _Head(_Wire):
    type: Any = ""
    subtype: Any = ""


#: Lines without which the protocol cannot go on; the others may be passed on unread.
_ESSENTIAL = frozenset({"control_request", "control_response", "control_cancel_request", "result"})

#: Reads a line that is as it should be, white space around it or not.
decode_line = _decode = msgspec.json.Decoder(Line).decode
_decode_odd_request = msgspec.json.Decoder(OddRequestLine).decode
_decode_head = msgspec.json.Decoder(_Head).decode
decode_initialize = msgspec.json.Decoder(InitializeAnswer).decode
_decode_usage = msgspec.json.Decoder(_UsageAnswer).decode
_decode_model = msgspec.json.Decoder(_ModelAnswer).decode


def decode_sums(answer: Raw) -> dict[str, ModelUsage] | None:
    """Read the answer to `get_usage`: the session's sums by model; None if it has another shape."""
    try:
        return _decode_usage(answer).session.model_usage
    except msgspec.DecodeError:
        return None


def decode_model(answer: Raw) -> str:
    """Read the answer to `set_model`: the model in use from now on; empty if it does not say."""
    try:
        return _decode_model(answer).model
    except msgspec.DecodeError:
        return ""


def read_line(line: bytes) -> Line | OddRequestLine | UnknownLine | UnreadableLine:
    """Read one line, strictly first, and if that fails as `mended` gives it."""
    try:
        return _decode(line)
    except msgspec.ValidationError as error:
        return _read_odd(line, error)
    except (msgspec.DecodeError, RecursionError) as error:
        whole = mended(line)
        if whole is None:
            return UnreadableLine(f"a line that is no JSON: {error}")
    try:
        return _decode(whole)
    except msgspec.ValidationError as error:
        return _read_odd(whole, error)


def _read_odd(line: bytes, error: msgspec.ValidationError) -> OddRequestLine | UnknownLine | UnreadableLine:
    # The typed decoder stopped where the shape was odd; the rest of the line is read for the first time here.
    whole = mended(line)
    if whole is None:
        return UnreadableLine(f"a line that is no JSON: {error}")
    head = _decode_head(whole)
    kind = head.type if isinstance(head.type, str) else ""
    if kind == "control_request":
        return _read_odd_request(whole, error)
    if kind in _ESSENTIAL:
        return UnreadableLine(f"a {kind} line of an unknown shape: {error}")
    return UnknownLine(f"{kind}/{head.subtype}" if head.subtype and isinstance(head.subtype, str) else kind)


def _read_odd_request(line: bytes, error: msgspec.ValidationError) -> OddRequestLine | UnreadableLine:
    try:
        odd = _decode_odd_request(line)
    except msgspec.ValidationError:
        return UnreadableLine(f"a control_request line of an unknown shape: {error}")
    if odd.request.subtype == "can_use_tool":
        return UnreadableLine(f"a control_request line of an unknown shape: {error}")
    odd.problem = str(error)
    return odd
