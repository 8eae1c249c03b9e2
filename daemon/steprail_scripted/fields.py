"""Typed access to parsed YAML; every complaint names the field, what was found and what is accepted."""

from collections.abc import Sequence
from typing import Any, NamedTuple


class ScriptError(ValueError):
    """A script that cannot be used; the message names the field."""


class Node(NamedTuple):
    """A value of the document with its path, such as `script.turns[0].replies[1].delay`."""

    path: str
    value: Any

    def wrong(self, accepted: str) -> ScriptError:
        """Make the complaint about this value."""
        found = repr(self.value)
        return ScriptError(
            f"{self.path}: found {found if len(found) <= 80 else found[:77] + '...'}; expected {accepted}"
        )

    def as_text(self) -> str:
        """Take a string; numbers are taken as YAML wrote them."""
        if isinstance(self.value, str):
            return self.value
        raise self.wrong("a string")

    def as_number(self) -> float:
        """Take a number that is not negative."""
        if (
            isinstance(self.value, bool)
            or not isinstance(self.value, int | float)
            or not 0 <= self.value < float("inf")
        ):
            raise self.wrong("a number, 0 or more")
        return float(self.value)

    def as_integer(self, low: int = 0, high: int | None = None) -> int:
        """Take an integer between two bounds."""
        value = self.value
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= (value if high is None else high):
            return value
        raise self.wrong(f"an integer, {low} or more" if high is None else f"an integer from {low} to {high}")

    def as_boolean(self) -> bool:
        """Take true or false."""
        if isinstance(self.value, bool):
            return self.value
        raise self.wrong("true or false")

    def as_choice(self, accepted: Sequence[str]) -> str:
        """Take one of several words."""
        if isinstance(self.value, str) and self.value in accepted:
            return self.value
        raise self.wrong(f"one of {', '.join(accepted)}")

    def as_items(self) -> list["Node"]:
        """Take a list."""
        if not isinstance(self.value, list):
            raise self.wrong("a list")
        return [Node(f"{self.path}[{index}]", item) for index, item in enumerate(self.value)]

    def mapping(self, accepted: Sequence[str]) -> "Fields":
        """Take a mapping that has no other keys than these."""
        if not isinstance(self.value, dict):
            raise self.wrong(f"a mapping with some of the keys {', '.join(accepted)}")
        for key in self.value:
            if key not in accepted:
                raise ScriptError(f"{self.path}.{key}: no such field; accepted are {', '.join(accepted)}")
        return Fields(self.path, self.value)


class Fields(NamedTuple):
    """A mapping whose keys are known to be accepted; each field has a default."""

    path: str
    values: dict[str, Any]

    def has(self, name: str) -> bool:
        """Say whether the field was given, be it as null."""
        return name in self.values

    def child(self, name: str) -> Node:
        """Give a field's value."""
        return Node(f"{self.path}.{name}", self.values.get(name))

    def node(self, name: str) -> Node | None:
        """Give a field's value, or `None` if it was not given or is null."""
        return self.child(name) if self.values.get(name) is not None else None

    def text(self, name: str, default: str) -> str:
        """Give a string."""
        return self.child(name).as_text() if self.has(name) else default

    def number(self, name: str, default: float) -> float:
        """Give a number."""
        return self.child(name).as_number() if self.has(name) else default

    def integer(self, name: str, default: int, low: int = 0, high: int | None = None) -> int:
        """Give an integer."""
        return self.child(name).as_integer(low, high) if self.has(name) else default

    def boolean(self, name: str, *, default: bool) -> bool:
        """Give true or false."""
        return self.child(name).as_boolean() if self.has(name) else default

    def choice(self, name: str, accepted: Sequence[str]) -> str | None:
        """Give one of several words."""
        return self.child(name).as_choice(accepted) if self.has(name) else None

    def items(self, name: str) -> list[Node]:
        """Give the members of a list."""
        return self.child(name).as_items() if self.has(name) else []
