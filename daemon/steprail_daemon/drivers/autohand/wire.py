"""The notifications that the Autohand CLI 0.8.2 writes in its mode `rpc`, as far as they are read here.

`method` tells the shape. Unknown members are skipped; what has no shape here is kept as text by the codec. Members that
may be absent have defaults; the others are those without which the protocol cannot be followed.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw

_EMPTY_OBJECT: Final = Raw(b"{}")


class _Wire(msgspec.Struct, gc=False):
    pass


class _Params(msgspec.Struct, gc=False, rename="camel"):
    pass


class _Line(_Wire, tag_field="method"):
    pass


class AgentStartParams(_Params):
    """The process is ready. `session_id` is of this process; it is not the id under which the session is saved.

    `saved_session_id` is that, told by the built-in agent only.
    """

    session_id: str
    model: str = ""
    saved_session_id: str = ""


class AgentStart(_Line, tag="autohand.agentStart"):
    """First line of a process that came up; also after `reset`, which is never sent here."""

    params: AgentStartParams


class AgentEnd(_Line, tag="autohand.agentEnd"):
    """The process shuts down."""


class TurnStart(_Line, tag="autohand.turnStart"):
    """The prompt is worked on; from here on it can be aborted."""


class TurnEndParams(_Params):
    """How a turn ended. `usage` is the built-in agent's; the CLI has only the running number, see `usage.py`."""

    reason: str
    tokens_used: int | None = None
    tokens_usage_status: str = ""
    usage: StepUsage | None = None


class TurnEnd(_Line, tag="autohand.turnEnd"):
    """The end of a turn, and nothing else is."""

    params: TurnEndParams


class MessageUpdateParams(_Params):
    """A part of the message; the CLI sends the whole at once."""

    message_id: str = ""
    delta: str = ""


class MessageUpdate(_Line, tag="autohand.messageUpdate"):
    """Text of the reply that calls no tools, or of an error."""

    params: MessageUpdateParams


class MessageEndParams(_Params):
    """The whole message; empty where the turn was stopped or aborted."""

    message_id: str = ""
    content: str = ""


class MessageEnd(_Line, tag="autohand.messageEnd"):
    """The turn's message is whole."""

    params: MessageEndParams


class BatchParams(_Params):
    """A batch of staged file writes. `change_count` are those that nobody decided about."""

    batch_id: str
    change_count: int = 0


class ChangesBatchStart(_Line, tag="autohand.changesBatchStart"):
    """File writes are staged from here on, until they are accepted."""

    params: BatchParams


class ChangesBatchEnd(_Line, tag="autohand.changesBatchEnd"):
    """No more writes are staged in this batch."""

    params: BatchParams


class CallParams(_Params):
    """A tool call."""

    tool_id: str
    tool_name: str
    args: Raw = _EMPTY_OBJECT


class PreTool(_Line, tag="autohand.hook.preTool"):
    """A call is looked at: before it is asked leave for, and before it starts."""

    params: CallParams


class ToolStart(_Line, tag="autohand.toolStart"):
    """A call runs. Its `args` have a member `type` more than the model gave, the tool's name."""

    params: CallParams


class CallTime(_Params):
    """How long a call took, in milliseconds."""

    tool_id: str = ""
    duration: float | None = None


class PostTool(_Line, tag="autohand.hook.postTool"):
    """Comes before `toolEnd` and says the same, and how long the call took."""

    params: CallTime


class ToolEndParams(_Params):
    """What came of a call. With an error, `output` may repeat it."""

    tool_id: str
    success: bool = False
    output: str | None = None
    error: str | None = None


class ToolEnd(_Line, tag="autohand.toolEnd"):
    """A call that had started ended."""

    params: ToolEndParams


class FileModifiedParams(_Params):
    """A file changed."""

    file_path: str = ""
    change_type: str = ""
    tool_id: str = ""


class FileModified(_Line, tag="autohand.hook.fileModified"):
    """A file was written, or staged to be."""

    params: FileModifiedParams


class StepCall(_Wire):
    """A call of the step."""

    id: str
    tool: str
    args: Raw = _EMPTY_OBJECT


class StepResult(_Params):
    """The result of the call at the same place. `kind` tells failures apart: authorization, operational, validation."""

    tool: str = ""
    success: bool = False
    kind: str = ""
    output: str | None = None
    error: str | None = None


class Step(_Params):
    """A reply of the model that called tools, with what came of them. `step_number` is no count of steps."""

    thought: str = ""
    tool_calls: list[StepCall] = []
    tool_results: list[StepResult] = []


class StepUsage(_Wire):
    """Tokens and money as the built-in agent tells them; the CLI tells none. Members it does not know are absent."""

    input_tokens: int | None = None
    cached_input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    model: str = ""
    cost_micro_usd: int | None = None


class StepEndParams(_Params):
    """A step is complete and stored."""

    step_id: str
    step: Step
    usage: StepUsage | None = None


class StepEnd(_Line, tag="autohand.stepEnd"):
    """The CLI waits for the decision that names `step_id`, without a limit."""

    params: StepEndParams


class PermissionHookParams(_Params):
    """The arguments of the call that the next question is about."""

    tool: str = ""
    args: Raw = _EMPTY_OBJECT


class PermissionHook(_Line, tag="autohand.hook.permissionRequest"):
    """Comes before `permissionRequest`, which has no arguments."""

    params: PermissionHookParams


class PermissionParams(_Params):
    """May a tool be used? `context` has the command or the path."""

    request_id: str
    tool: str = ""
    description: str = ""
    context: Raw = _EMPTY_OBJECT


class PermissionRequest(_Line, tag="autohand.permissionRequest"):
    """A question that is denied after 30 s, or after an hour if it was acknowledged."""

    params: PermissionParams


class DirectoryParams(_Params):
    """May a directory outside of the workspace be used?"""

    request_id: str
    path: str = ""
    reason: str = ""


class DirectoryRequest(_Line, tag="autohand.directoryAccessRequest"):
    """A question with the timers of a permission."""

    params: DirectoryParams


class ErrorParams(_Params):
    """An error that the CLI shows."""

    code: int | str = ""
    message: str = ""
    error_type: str = ""


class Error(_Line, tag="autohand.error"):
    """Something went wrong in the turn; most often it ends with it."""

    params: ErrorParams


class SessionErrorParams(_Params):
    """An error in its first words."""

    error: str = ""
    code: str = ""


class SessionError(_Line, tag="autohand.hook.sessionError"):
    """An error, told twice, without its code the second time."""

    params: SessionErrorParams


class RateLimitParams(_Params):
    """The provider's refusal."""

    error: str = ""
    code: str = ""
    retry_after_ms: float | None = None
    http_status: int | None = None
    model: str = ""
    provider: str = ""


class RateLimit(_Line, tag="autohand.hook.rateLimit"):
    """The provider answered with a rate limit; it is not tried again."""

    params: RateLimitParams


class ContextParams(_Params):
    """How full the model's context is, where it is told."""

    tokens_after: int | None = None
    tokens_used: int | None = None
    max_tokens: int | None = None


class ContextCompacted(_Line, tag="autohand.hook.contextCompacted"):
    """The history was shortened."""

    params: ContextParams


class ContextOverflow(_Line, tag="autohand.hook.contextOverflow"):
    """The history no longer fitted; it is shortened next."""

    params: ContextParams


class ContextWarning(_Line, tag="autohand.hook.contextWarning"):
    """The history is long."""

    params: ContextParams


class ContextCritical(_Line, tag="autohand.hook.contextCritical"):
    """The history is very long."""

    params: ContextParams


Notification = (
    AgentStart
    | AgentEnd
    | TurnStart
    | TurnEnd
    | MessageUpdate
    | MessageEnd
    | ChangesBatchStart
    | ChangesBatchEnd
    | PreTool
    | ToolStart
    | PostTool
    | ToolEnd
    | FileModified
    | StepEnd
    | PermissionHook
    | PermissionRequest
    | DirectoryRequest
    | Error
    | SessionError
    | RateLimit
    | ContextCompacted
    | ContextOverflow
    | ContextWarning
    | ContextCritical
)
