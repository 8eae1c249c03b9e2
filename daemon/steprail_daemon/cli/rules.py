"""Stop rules in their short form, as `--stop-when` takes them."""

from __future__ import annotations

from typing import Any

import click

#: The short rules that this version takes, each with what may follow.
ACCEPTED = {"steps": "a number of steps, 1 or more, such as steps=3"}


class StopWhen(click.ParamType[int]):
    """A short rule. The only one so far is `steps=N`, so that its value is N."""

    name = "RULE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read a rule."""
        if isinstance(value, int):
            return value
        kind, _, limit = str(value).partition("=")
        accepted = "; ".join(f"{name}=N, {words}" for name, words in ACCEPTED.items())
        if kind not in ACCEPTED:
            self.fail(f"there is no rule {kind!r}; accepted: {accepted}", param, ctx)
        if not (limit.isascii() and limit.isdigit() and 1 <= int(limit) < 1 << 31):
            self.fail(f"{value!r} has no such limit; accepted: {accepted}", param, ctx)
        return int(limit)
