"""What a checked expression may hold, and the rewriting of its reads; see the package docstring for the why.

The rewritten expression reads one variable, the whole view, so that one message is bound instead of a list of them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping

from steprail_daemon.expressions.messages.checked_pb2 import CheckedExpr, Expr, Type

#: The variable that a rewritten expression reads, and the function that it calls where something is absent. No source
#: text can name them, for no identifier begins so.
VIEW = "@view"
ABSENT = "@absent"
ABSENT_OVERLOAD = "@absent_string"

MAX_COMPREHENSIONS = 6
MAX_NESTING = 2
#: Parts of the rewritten expression. A plain expression of 2 KiB has some hundreds.
MAX_PARTS = 4_000

_CONCATENATIONS = {"add_string": "texts", "add_bytes": "bytes", "add_list": "lists"}
_ACCUMULATOR = "@result"


class Rejected(Exception):
    """An expression that may not be used. `expr_id` is the part at fault."""

    def __init__(self, expr_id: int, message: str) -> None:
        super().__init__(message)
        self.expr_id = expr_id
        self.message = message


class Guard:
    """Walks one checked expression and rewrites it in place.

    `variables` are the view's fields, with whether each can be absent. After `rewrite`, `reads` holds the variables
    that are read, and `patterns` the regular expressions by the id of their part.
    """

    def __init__(self, checked: CheckedExpr, variables: Mapping[str, bool]) -> None:
        self.reads: set[str] = set()
        self.patterns: dict[int, str] = {}
        self._checked = checked
        self._variables = variables
        self._comprehensions = 0
        self._nesting = 0
        self._scopes: list[str] = []
        self._next_id = max(checked.type_map, default=0) + max(checked.source_info.positions, default=0) + 1

    def rewrite(self) -> None:
        """Check and rewrite.

        Raises:
            Rejected: the expression may not be used.
        """
        self._visit(self._checked.expr)

    # Each visit checks a part with all below it, rewrites it and gives its size afterwards.

    def _visit(self, expr: Expr, *, asks_absence: bool = False) -> int:
        kind = expr.WhichOneof("expr_kind")
        if kind == "select_expr":
            size = self._select(expr, asks_absence)
        elif kind == "ident_expr":
            size = self._ident(expr, asks_absence)
        else:
            visit = self._VISITS.get(kind or "")
            size = 1 if visit is None else visit(self, expr)
        if size > MAX_PARTS:
            raise Rejected(expr.id, f"the expression has over {MAX_PARTS} parts; accepted are fewer")
        return size

    def _ident(self, expr: Expr, asks_absence: bool) -> int:
        name = expr.ident_expr.name
        if name in self._scopes or name not in self._variables:
            return 1
        self.reads.add(name)
        self._checked.reference_map.pop(expr.id, None)
        view = Expr(id=self._new_id(), ident_expr=Expr.Ident(name=VIEW))
        self._checked.reference_map[view.id].name = VIEW
        expr.select_expr.operand.CopyFrom(view)
        expr.select_expr.field = name
        if self._variables[name] and not asks_absence:
            return self._read_or_absent(expr, name, 2)
        return 2

    def _select(self, expr: Expr, asks_absence: bool) -> int:
        select = expr.select_expr
        if _kind_of(self._type(select.operand)) in (None, "dyn"):
            raise Rejected(expr.id, f"the type of what {select.field!r} is taken from is not known before it runs")
        path = _path(expr)
        size = 1 + self._visit(select.operand)
        if select.test_only or asks_absence or _kind_of(self._type(expr)) != "wrapper":
            return size
        return self._read_or_absent(expr, path, size)

    def _read_or_absent(self, expr: Expr, path: str, size: int) -> int:
        """Turn `read` into `has(read) ? read : @absent("path")`."""
        read, has = Expr(), Expr()
        read.CopyFrom(expr)
        has.CopyFrom(expr)
        has.id = self._new_id()
        has.select_expr.test_only = True
        expr.Clear()
        expr.id = self._new_id()
        self._call(expr, "_?_:_", "conditional")
        absent = Expr(id=self._new_id())
        self._call(absent, ABSENT, ABSENT_OVERLOAD)
        text = absent.call_expr.args.add(id=self._new_id())
        text.const_expr.string_value = path
        expr.call_expr.args.extend((has, read, absent))
        return 2 * size + 3

    def _call(self, expr: Expr, function: str, overload: str) -> None:
        expr.call_expr.function = function
        reference = self._checked.reference_map[expr.id]
        reference.name = function
        reference.overload_id.append(overload)

    def _visit_call(self, expr: Expr) -> int:
        call = expr.call_expr
        self._check_call(expr)
        asks_absence = call.function in ("_==_", "_!=_") and any(_is_null(argument) for argument in call.args)
        size = 1 + sum(self._visit(argument, asks_absence=asks_absence) for argument in call.args)
        size += self._visit(call.target) if call.HasField("target") else 0
        if asks_absence:
            self._ask_of_message(expr)
        return size

    def _ask_of_message(self, expr: Expr) -> None:
        """Turn `message == null`, which CEL holds to be false of an unset message too, into `!has(message)`."""
        call = expr.call_expr
        asked = next((argument for argument in call.args if not _is_null(argument)), None)
        if asked is None or asked.WhichOneof("expr_kind") != "select_expr":
            return
        if _kind_of(self._type(asked)) != "message_type":
            return
        has = Expr()
        has.CopyFrom(asked)
        has.id = self._new_id()
        has.select_expr.test_only = True
        equal = call.function == "_==_"
        expr.Clear()
        if equal:
            expr.id = self._new_id()
            self._call(expr, "!_", "logical_not")
            expr.call_expr.args.append(has)
        else:
            expr.CopyFrom(has)

    def _check_call(self, expr: Expr) -> None:
        call = expr.call_expr
        if call.function == "dyn":
            raise Rejected(expr.id, "dyn() is not available; every part must have a type that is known before it runs")
        if call.function == "_+_" and not _is_accumulation(expr):
            for overload in self._checked.reference_map[expr.id].overload_id:
                if overload in _CONCATENATIONS:
                    raise Rejected(expr.id, f"{_CONCATENATIONS[overload]} cannot be joined with '+'")
        if call.function == "matches":
            self._check_pattern(call.args[-1])

    def _check_pattern(self, pattern: Expr) -> None:
        if pattern.const_expr.WhichOneof("constant_kind") != "string_value":
            raise Rejected(pattern.id, "the regular expression of matches() must be written out as a text")
        self.patterns[pattern.id] = pattern.const_expr.string_value

    def _visit_list(self, expr: Expr) -> int:
        return 1 + sum(self._visit(element) for element in expr.list_expr.elements)

    def _visit_struct(self, expr: Expr) -> int:
        struct = expr.struct_expr
        if struct.message_name:
            raise Rejected(expr.id, f"messages such as {struct.message_name!r} cannot be made")
        return 1 + sum(self._visit(entry.map_key) + self._visit(entry.value) for entry in struct.entries)

    def _visit_comprehension(self, expr: Expr) -> int:
        loop = expr.comprehension_expr
        self._comprehensions += 1
        if self._comprehensions > MAX_COMPREHENSIONS:
            raise Rejected(expr.id, f"there are over {MAX_COMPREHENSIONS} loops (all, exists, map, filter ...)")
        size = 1 + self._visit(loop.iter_range)
        names = [loop.iter_var, loop.iter_var2, loop.accu_var]
        hidden = next((name for name in names if name in self._variables), None)
        if hidden is not None:
            raise Rejected(expr.id, f"the loop's variable {hidden!r} would hide the variable of that name")
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            raise Rejected(expr.id, f"loops are nested over {MAX_NESTING} deep")
        self._scopes += names
        for part in (loop.accu_init, loop.loop_condition, loop.loop_step, loop.result):
            size += self._visit(part)
        del self._scopes[-len(names) :]
        self._nesting -= 1
        return size

    _VISITS: Mapping[str, Callable[[Guard, Expr], int]] = {
        "call_expr": _visit_call,
        "list_expr": _visit_list,
        "struct_expr": _visit_struct,
        "comprehension_expr": _visit_comprehension,
    }

    def _type(self, expr: Expr) -> Type | None:
        return self._checked.type_map.get(expr.id)

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id


def result_type(checked: CheckedExpr, accepted: Container[str]) -> bool:
    """Whether an expression is of one of the `accepted` types, "bool" and "string"."""
    kind = checked.type_map[checked.expr.id]
    number = kind.wrapper or kind.primitive
    return {1: "bool", 5: "string"}.get(number, "other") in accepted


def _kind_of(kind: Type | None) -> str | None:
    return None if kind is None else kind.WhichOneof("type_kind")


def _is_null(expr: Expr) -> bool:
    return expr.const_expr.WhichOneof("constant_kind") == "null_value"


def _is_accumulation(expr: Expr) -> bool:
    """Whether this is the `@result + [element]` that map and filter stand for."""
    first, second = expr.call_expr.args
    return first.ident_expr.name == _ACCUMULATOR and len(second.list_expr.elements) == 1


def _path(expr: Expr) -> str:
    """Write a chain of selections as the source has it, what is between brackets left out."""
    return "".join(reversed(list(_pieces(expr))))


def _pieces(expr: Expr) -> Iterator[str]:
    while True:
        kind = expr.WhichOneof("expr_kind")
        if kind == "select_expr":
            yield f".{expr.select_expr.field}"
            expr = expr.select_expr.operand
        elif kind == "call_expr" and expr.call_expr.function == "_[_]":
            yield "[...]"
            expr = expr.call_expr.args[0]
        else:
            yield expr.ident_expr.name if kind == "ident_expr" else "(...)"
            return
