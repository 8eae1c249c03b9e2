"""From source to program, and from program to result. In the worker only: this is the module that loads CEL."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from cel_expr_python import cel
from google.protobuf import any_pb2
from google.protobuf.message import Message

from steprail_daemon.expressions import guard
from steprail_daemon.expressions.messages import view_pb2, worker_pb2
from steprail_daemon.expressions.messages.checked_pb2 import CheckedExpr

MAX_SOURCE_BYTES = 2 << 10
MAX_REASON_BYTES = 1 << 10
MAX_PROBLEMS = 8
MAX_PROBLEM_BYTES = 384

_PLACED = re.compile(r"^(?:[A-Z_]+: )?ERROR: <input>:(-?\d+):(-?\d+): (.*)$", re.MULTILINE)
#: What cel-cpp says around the sentence: the status before it, its name again behind it, and the empty container.
_STATUS = re.compile(r"^[A-Z_]+: |\s*\[[A-Z_]+\]$| \(in container ''\)")
#: What evaluation says when something absent was read. `LookupError` of a function becomes NOT_FOUND.
_ABSENT = "NOT_FOUND: absent: "
_NO_KEY = "NOT_FOUND: Key not found in map : "
_BUDGET = "Iteration budget exceeded"


class SourceProblem(Exception):
    """A source that cannot be used; `problems` say why, at least one and at most `MAX_PROBLEMS`."""

    def __init__(self, problems: list[worker_pb2.Problem]) -> None:
        super().__init__(problems[0].message)
        self.problems = problems


class OverMemory(Exception):
    """An evaluation asked for more memory than there is. The process should be given up: its heap is in pieces."""


class Program:
    """A compiled expression. `uses_steps`: it reads the window of steps."""

    def __init__(self, expression: cel.Expression, uses_steps: bool) -> None:
        self._expression = expression
        self.uses_steps = uses_steps

    def evaluate(self, activation: cel.Activation) -> worker_pb2.Result:
        """Give what it says.

        Raises:
            OverMemory: the limit of memory was reached.
        """
        try:
            value = self._expression.eval(activation)
            # An error is a value too, whose value is a text.
            failed = value.type() == cel.Type.ERROR
            found = value.value()
        except MemoryError as error:
            raise OverMemory from error
        except RuntimeError as error:
            if _BUDGET in str(error):
                return _unknown("over the bound: 10000 iterations of all loops together")
            return _error(str(error))
        return _of_error(str(found)) if failed else _of_value(found)


class Environment:
    """What one kind of expression sees: the fields of a message as variables.

    `optional_messages` are those message fields whose absence counts as such; in others every field has a value.
    """

    def __init__(self, view: type[Message], types: tuple[str, ...], optional_messages: tuple[str, ...] = ()) -> None:
        fields = view.DESCRIPTOR.fields_by_name
        self._view = view
        self._types = types
        self._variables = {name: _can_be_absent(field, optional_messages) for name, field in fields.items()}
        config = f"name: steprail\ncontext_variable:\n  type_name: {view.DESCRIPTOR.full_name}\n"
        self._checking = cel.NewEnv(config=cel.NewEnvConfigFromYaml(config))
        absent = cel.Overload(
            guard.ABSENT_OVERLOAD, return_type=cel.Type.DYN, parameters=[cel.Type.STRING], impl=_absent
        )
        self._running = cel.NewEnv(
            variables={guard.VIEW: cel.Type(view.DESCRIPTOR.full_name)},
            functions=[cel.FunctionDecl(guard.ABSENT, [absent])],
        )

    def compile(self, source: str) -> Program:
        """Check a source and make a program of it.

        Raises:
            SourceProblem: it cannot be used.
        """
        size = len(source.encode())
        if not 1 <= size <= MAX_SOURCE_BYTES:
            raise _whole(f"it has {size} bytes; accepted are 1 to {MAX_SOURCE_BYTES}")
        checked = self._check(source)
        if not guard.result_type(checked, self._types):
            accepted = " or ".join(self._types)
            raise _whole(f"it is of type {_type_name(checked)}; accepted is {accepted}")
        rewriting = guard.Guard(checked, self._variables)
        try:
            rewriting.rewrite()
        except guard.Rejected as rejected:
            raise _at(source, checked, rejected.expr_id, rejected.message) from rejected
        self._check_patterns(source, checked, rewriting.patterns)
        packed = any_pb2.Any()
        packed.type_url = "type.googleapis.com/cel.expr.CheckedExpr"
        packed.value = checked.SerializeToString()
        return Program(self._running.deserialize(packed.SerializeToString()), "steps" in rewriting.reads)

    def bind(self, view: bytes) -> cel.Activation:
        """Make a view, encoded, what programs read."""
        return self._running.Activation({guard.VIEW: self._view.FromString(view)})

    def _check(self, source: str) -> CheckedExpr:
        try:
            expression = self._checking.compile(source)
        except RuntimeError as error:
            raise SourceProblem(_problems(str(error))) from error
        return CheckedExpr.FromString(any_pb2.Any.FromString(expression.serialize()).value)

    def _check_patterns(self, source: str, checked: CheckedExpr, patterns: dict[int, str]) -> None:
        matching = (
            cel.NewEnv(variables={"pattern": cel.Type.STRING}).compile("''.matches(pattern)") if patterns else None
        )
        for expr_id, pattern in patterns.items():
            assert matching is not None
            tried = matching.eval(data={"pattern": pattern})
            if tried.type() == cel.Type.ERROR:
                raise _at(source, checked, expr_id, _plain(str(tried.value())))


def environments() -> dict[int, Environment]:
    """Make the environments, by the number of their kind."""
    return {
        worker_pb2.KIND_STOP_RULE: Environment(view_pb2.StopView, ("bool", "string"), ("step",)),
        worker_pb2.KIND_PERMISSION_RULE: Environment(view_pb2.PermissionView, ("bool",)),
    }


def _can_be_absent(field: Any, optional_messages: tuple[str, ...]) -> bool:
    kind = field.message_type
    return kind is not None and (kind.full_name.startswith("google.protobuf.") or field.name in optional_messages)


def _absent(path: str) -> None:
    raise LookupError(f"absent: {path}")


# Results


def _of_value(found: object) -> worker_pb2.Result:
    if isinstance(found, str):
        matched = bool(found)
        text = _cut(found, MAX_REASON_BYTES)
        return worker_pb2.Result(outcome=_matched(matched), text=text)
    if isinstance(found, bool):
        return worker_pb2.Result(outcome=_matched(found))
    return _error(f"it gave a {type(found).__name__}, where only a bool or a string was checked for")


def _of_error(text: str) -> worker_pb2.Result:
    if text.startswith(_ABSENT):
        return _unknown(f"{text.removeprefix(_ABSENT)} is absent")
    if text.startswith(_NO_KEY):
        return _unknown(f"there is no key {text.removeprefix(_NO_KEY)}")
    return _error(text)


def _matched(yes: bool) -> worker_pb2.Outcome.ValueType:
    return worker_pb2.OUTCOME_MATCHED if yes else worker_pb2.OUTCOME_NOT_MATCHED


def _unknown(text: str) -> worker_pb2.Result:
    return worker_pb2.Result(outcome=worker_pb2.OUTCOME_UNKNOWN, text=_cut(text, MAX_REASON_BYTES))


def _error(text: str) -> worker_pb2.Result:
    return worker_pb2.Result(outcome=worker_pb2.OUTCOME_ERROR, text=_cut(_plain(text), MAX_REASON_BYTES))


# Problems


def _problems(text: str) -> list[worker_pb2.Problem]:
    """Read what the checker says, which may be several sentences with their places."""
    placed = {(_place(match), _plain(match.group(3))): None for match in _PLACED.finditer(text)}
    # cel-cpp's own remark after a syntax error, which tells nobody anything.
    found = [(place, message) for place, message in placed if not message.startswith("<<nil>>")]
    if not found:
        return [_problem(None, _plain(text))]
    return [_problem(place, message) for place, message in found[:MAX_PROBLEMS]]


def _place(match: re.Match[str]) -> tuple[int, int] | None:
    line, column = int(match.group(1)), int(match.group(2))
    return (line, column) if line >= 1 and column >= 1 else None


def _problem(place: tuple[int, int] | None, message: str) -> worker_pb2.Problem:
    line, column = place or (0, 0)
    return worker_pb2.Problem(line=line, column=column, message=_cut(message, MAX_PROBLEM_BYTES))


def _whole(message: str) -> SourceProblem:
    return SourceProblem([_problem(None, message)])


def _at(source: str, checked: CheckedExpr, expr_id: int, message: str) -> SourceProblem:
    offset = checked.source_info.positions.get(expr_id)
    if offset is None:
        return _whole(message)
    before = source[:offset]
    place = before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1
    return SourceProblem([_problem(place, message)])


def _type_name(checked: CheckedExpr) -> str:
    kind = checked.type_map[checked.expr.id]
    which = next(_type_words(kind), None)
    return which or "another kind"


def _type_words(kind: Any) -> Iterator[str]:
    names = {1: "bool", 2: "int", 3: "uint", 4: "double", 5: "string", 6: "bytes"}
    which = kind.WhichOneof("type_kind")
    if which in ("primitive", "wrapper"):
        yield names.get(kind.primitive or kind.wrapper, which)
    elif which == "message_type":
        yield kind.message_type.rpartition(".")[2]
    elif which is not None:
        yield {"list_type": "list", "map_type": "map", "well_known": "timestamp or duration"}.get(which, which)


def _plain(text: str) -> str:
    return _STATUS.sub("", _STATUS.sub("", text.strip())).replace("steprail.view.v1.", "")


def _cut(text: str, limit: int) -> str:
    return text.encode(errors="replace")[:limit].decode(errors="ignore")
