"""The methods of the dialect, under the prefix `autohand.`."""

import threading
from typing import TYPE_CHECKING, Any

from steprail_scripted.model import Prompt
from steprail_scripted.rpc import INTERNAL_ERROR, INVALID_PARAMS, Effect, Handled, Method, RpcError
from steprail_scripted.tools import TOOLS
from steprail_scripted.wire import now_ms, timestamp

if TYPE_CHECKING:
    from steprail_scripted.agent import Agent

USER = {"id": "scripted", "email": "scripted@example.invalid", "name": "Built-in agent"}
ACTIONS = ("accept_all", "reject_all", "accept_selected")
PAGE_SIZE = 20


class Methods:
    """The handlers; each gives the result and what is to happen after it is answered."""

    def __init__(self, agent: "Agent") -> None:
        self._agent = agent

    def table(self) -> dict[str, Method]:
        """Give the methods by their full names."""
        table: dict[str, Method] = {
            "prompt": self._prompt,
            "stepDecision": self._step_decision,
            "abort": self._abort,
            "reset": self._reset,
            "getState": self._get_state,
            "getMessages": self._get_messages,
            "getHistory": self._get_history,
            "getSession": self._get_session,
            "session.attach": self._attach,
            "permissionAcknowledged": lambda params: self._acknowledge("permission", params),
            "permissionResponse": lambda params: self._respond("permission", params),
            "directoryAccessAcknowledged": lambda params: self._acknowledge("directory", params),
            "directoryAccessResponse": lambda params: self._respond("directory", params),
            "changesDecision": self._changes_decision,
            "planModeSet": self._plan_mode_set,
            "permissionModeSet": self._permission_mode_set,
            "yoloSet": self._yolo_set,
            "yolo.set": self._yolo_set,
            "getContextUsage": self._get_context_usage,
            "getSupportedModels": self._get_supported_models,
            "getSupportedCommands": lambda _: Handled({"commands": ["/help", "/model", "/status"]}),
            "getToolsRegistry": lambda _: Handled({"tools": [{"name": name} for name in TOOLS]}),
            "getAccountInfo": lambda _: Handled({"success": True, "user": USER}),
        }
        # They say success and do nothing, the switch of the model included: so does the CLI.
        for name in ("modelSet", "maxThinkingTokensSet", "applyFlagSettings", "reloadPlugins", "setContextCompact"):
            table[name] = lambda _: Handled({"success": True})
        return {f"autohand.{name}": method for name, method in table.items()}

    def _prompt(self, params: dict[str, Any]) -> Handled:
        message = params.get("message")
        if not isinstance(message, str) or not message:
            raise RpcError(INVALID_PARAMS, "Missing required parameter: message")
        if self._agent.busy:
            raise RpcError(INTERNAL_ERROR, "Agent is already processing")
        self._agent.begin(_prompt_of(message, params))
        return Handled({"success": True})

    def _step_decision(self, params: dict[str, Any]) -> Handled:
        step_id, stop = params.get("stepId"), params.get("stop")
        if not isinstance(step_id, str) or not isinstance(stop, bool):
            raise RpcError(INVALID_PARAMS, "stepDecision requires stepId and boolean stop parameters")
        turn = self._agent.turn
        if turn is None or not turn.take_decision(step_id):
            return Handled({"success": False})
        return Handled({"success": True}, Effect(lambda: turn.decide(stop=stop)))

    def _abort(self, _: dict[str, Any]) -> Handled:
        busy = self._agent.busy
        return Handled({"success": busy}, self._agent.abort() if busy else None)

    def _reset(self, _: dict[str, Any]) -> Handled:
        process = self._agent.process
        asked = [message for message in process.conversation.messages if message["role"] == "user"]
        if len(asked) >= 2 and process.script.timers.reset:
            # The CLI asks the model for memories first; meanwhile it serves nothing.
            threading.Event().wait(process.script.timers.reset)
        process.wire.notify("hook.sessionEnd", {"reason": "clear", "duration": now_ms() - process.started_ms})
        process.conversation.clear()
        process.session_id = process.wire.new_id("session")
        process.started_ms = now_ms()
        self._agent.looks_idle = not self._agent.wedged
        process.send_agent_start(with_context=False)
        process.wire.notify("hook.sessionStart", {"sessionType": "clear"})
        return Handled({"sessionId": process.session_id})

    def _get_state(self, _: dict[str, Any]) -> Handled:
        process = self._agent.process
        return Handled(
            {
                "status": self._agent.status(),
                "sessionId": process.session_id,
                "model": process.options.model,
                "workspace": str(process.options.workspace),
                "contextPercent": process.context_percent(),
                "messageCount": process.conversation.count,
                "authenticatedUser": USER,
            }
        )

    def _get_messages(self, params: dict[str, Any]) -> Handled:
        messages = self._agent.process.conversation.messages
        limit = params.get("limit")
        if isinstance(limit, int) and limit > 0:
            messages = messages[-limit:]
        return Handled({"messages": [_message(f"msg_{index}", message) for index, message in enumerate(messages)]})

    def _get_history(self, params: dict[str, Any]) -> Handled:
        page, size = _positive(params.get("page"), 1), _positive(params.get("pageSize"), PAGE_SIZE)
        found = self._agent.process.store.newest_first()
        return Handled(
            {
                "sessions": [saved.summary() for saved in found[(page - 1) * size : page * size]],
                "currentPage": page,
                "totalPages": max(1, -(-len(found) // size)),
                "totalItems": len(found),
            }
        )

    def _get_session(self, params: dict[str, Any]) -> Handled:
        _, saved = self._open(params)
        shown = []
        for index, message in enumerate(saved.messages):
            # Names and arguments of tools come back empty from the CLI.
            calls = [{"id": "", "name": "", "args": {}} for _ in message.get("toolCalls", [])]
            shown.append({**_message(f"msg-{index}", message), "timestamp": message["timestamp"], "toolCalls": calls})
        return Handled({"success": True, **saved.summary(), "workspaceRoot": saved.workspace, "messages": shown})

    def _attach(self, params: dict[str, Any]) -> Handled:
        if self._agent.busy:
            raise RpcError(INTERNAL_ERROR, "Agent is already processing")
        file, saved = self._open(params)
        process = self._agent.process
        process.wire.notify("hook.sessionEnd", {"reason": "exit", "duration": now_ms() - process.started_ms})
        process.conversation.file.append("status", status="completed")
        process.conversation.attach(file, saved.messages)
        process.session_id = saved.session_id
        process.started_ms = now_ms()
        file.append("status", status="active")
        process.wire.notify("hook.sessionStart", {"sessionType": "resume"})
        return Handled(
            {
                "success": True,
                "sessionId": saved.session_id,
                "workspaceRoot": str(process.options.workspace),
                "messageCount": len(saved.messages),
            }
        )

    def _open(self, params: dict[str, Any]) -> Any:
        session_id = params.get("sessionId")
        if not isinstance(session_id, str) or not session_id:
            raise RpcError(INVALID_PARAMS, "Missing required parameter: sessionId")
        found = self._agent.process.store.open(session_id)
        if found is None:
            raise RpcError(INTERNAL_ERROR, f"Session not found: {session_id}")
        return found

    def _acknowledge(self, kind: str, params: dict[str, Any]) -> Handled:
        return Handled({"success": self._agent.process.questions.acknowledge(kind, _request_id(params))})

    def _respond(self, kind: str, params: dict[str, Any]) -> Handled:
        questions, request_id = self._agent.process.questions, _request_id(params)
        if not questions.answerable(kind, request_id):
            return Handled({"success": False})
        return Handled({"success": True}, Effect(lambda: questions.answer(kind, request_id, params)))

    def _changes_decision(self, params: dict[str, Any]) -> Handled:
        batch_id, action = params.get("batchId"), params.get("action")
        if not isinstance(batch_id, str) or action not in ACTIONS:
            raise RpcError(INVALID_PARAMS, f"changesDecision requires batchId and action ({', '.join(ACTIONS)})")
        selected = params.get("selectedChangeIds") or []
        return Handled(self._agent.process.staging.decide(batch_id, action, selected))

    def _plan_mode_set(self, params: dict[str, Any]) -> Handled:
        enabled = params.get("enabled")
        if not isinstance(enabled, bool):
            raise RpcError(INVALID_PARAMS, "Missing required parameter: enabled")
        self._agent.process.plan_mode = enabled
        return Handled({"success": True})

    def _permission_mode_set(self, params: dict[str, Any]) -> Handled:
        mode = params.get("mode")
        if not isinstance(mode, str):
            raise RpcError(INVALID_PARAMS, "Missing required parameter: mode")
        self._agent.process.permissions.mode = mode
        return Handled({"success": True})

    def _yolo_set(self, params: dict[str, Any]) -> Handled:
        seconds = params.get("timeoutSeconds")
        limit = float(seconds) if isinstance(seconds, int | float) else 3_600.0
        # The pattern is ignored, except that an empty one ends it: so it is in the CLI.
        self._agent.process.permissions.yolo(limit if params.get("pattern") else 0.0)
        return Handled({"success": True})

    def _get_context_usage(self, _: dict[str, Any]) -> Handled:
        process = self._agent.process
        return Handled({"contextPercent": process.context_percent(), "contextWindow": process.script.context_window})

    def _get_supported_models(self, _: dict[str, Any]) -> Handled:
        return Handled({"models": [{"id": self._agent.process.options.model}]})


def _prompt_of(message: str, params: dict[str, Any]) -> Prompt:
    context = params.get("context") if isinstance(params.get("context"), dict) else {}
    assert isinstance(context, dict)
    selection = context.get("selection")
    if isinstance(selection, dict):
        lines = f"{selection.get('startLine')}-{selection.get('endLine')}"
        message += f"\n\nContext from {selection.get('file')} (lines {lines}):\n```\n{selection.get('text')}\n```"
    stop_when = params.get("stopWhen")
    return Prompt(
        text=message,
        files=tuple(name for name in context.get("files") or [] if isinstance(name, str)),
        images=len(params.get("images") or []),
        host_stops=isinstance(stop_when, dict) and stop_when.get("mode") == "host",
    )


def _message(message_id: str, message: dict[str, Any]) -> dict[str, Any]:
    calls = {"toolCalls": message["toolCalls"]} if message.get("toolCalls") else {}
    return {
        "id": message_id,
        "role": message["role"],
        "content": message["content"],
        "timestamp": timestamp(),  # the CLI gives the present time, not that of the message
        **calls,
    }


def _request_id(params: dict[str, Any]) -> str:
    request_id = params.get("requestId")
    if not isinstance(request_id, str) or not request_id:
        raise RpcError(INVALID_PARAMS, "Missing required parameter: requestId")
    return request_id


def _positive(value: Any, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else default
