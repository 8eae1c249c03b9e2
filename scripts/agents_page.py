"""Write what each agent can do, from what its driver declares: `docs/agents.md`, and the short table in `README.md`.

Each capability of the API has a row, with its words here; one without fails, and so does a row for none.

    python scripts/agents_page.py            write both
    python scripts/agents_page.py --check    exit 1 and name each file that is stale
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from steprail_daemon.core.model import SECOND, Capabilities
from steprail_daemon.drivers.base import Driver
from steprail_daemon.drivers.registry import DRIVERS

ROOT = Path(__file__).resolve().parent.parent

_BEGIN = "<!-- Written by `make docs` from what the drivers declare. -->\n"
_END = "<!-- To here. -->\n"

_HEAD = """<!-- Written by `make docs` from what the drivers declare. -->

# Agents, and what they can do

A driver declares only what was shown of its agent: by the [conformance kit](writing-a-driver.md#the-conformance-kit),
by a recording, or by the program's source. What is asked for and not declared is refused with CAPABILITY_MISSING;
nothing is emulated. Clients read the same from `ListAgents`, and of a session from `Session.capabilities`, which may be
fewer; `steprail agents --json` prints it.

"""

_TAIL = """
More on each: [Claude Code](claude-code.md), [Autohand CLI](autohand.md), [the built-in agent](scripted-agent.md).
Which of them callers may choose, by which names and with which programs, is
[configured](configuration.md#agentsname).
"""


@dataclass(frozen=True)
class Row:
    """A row: the capability's field, what it means, and whether it is in the short table too."""

    field: str
    meaning: str
    short: bool = False


ROWS = (
    Row("step_gate", "waits at the step boundary", short=True),
    Row("usage", "tells its tokens", short=True),
    Row("cost", "tells what it cost", short=True),
    Row("finish_reason", "tells why a message ended"),
    Row("partial_text", "shows messages while they are written"),
    Row("permissions", "asks before it uses tools", short=True),
    Row("permission_alternatives", "does something else in place of a call, if it is told to"),
    Row("questions", "can ask a person questions", short=True),
    Row("resume", "takes up an earlier conversation", short=True),
    Row("steer", "takes a text while it works", short=True),
    Row("guidance", "takes a text with the decision to go on", short=True),
    Row("continue_without_prompt", "goes on after a stop without a prompt; else the daemon sends a neutral one"),
    Row("plan_mode", "can plan without acting", short=True),
    Row("model_switch", "can change the model within a session", short=True),
    Row("images", "takes images"),
    Row("fork", "can branch a conversation"),
    Row("mcp_servers", "can be given MCP servers by name"),
    Row("loop_strategy", "has loop strategies to choose from"),
    Row("max_iterations", "has a limit of its own on iterations that can be set"),
    Row("stop_leaves_trace", "its model sees after a stop that it was stopped"),
    Row("abort_keeps_results", "its model still knows the results of complete steps after an abort"),
    Row("max_decision_hold_ns", "longest wait at a boundary that is relied on"),
    Row("max_permission_hold_ns", "longest wait for an answer to a permission that is relied on"),
)

_WORDS = {
    "EXACT": "exactly",
    "BEST_EFFORT": "nearly",
    "PER_STEP": "with each step",
    "PER_RUN": "at the end of a run",
    "REPORTED": "yes",
    "PRICED": "by prices of the configuration",
    "UNSUPPORTED": "no",
}


def _cell(value: object) -> str:
    if value is None or value is False:
        return "no"
    if value is True:
        return "yes"
    if isinstance(value, IntEnum):
        return _WORDS[value.name]
    assert isinstance(value, int)
    seconds = value // SECOND
    for size, word in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size and seconds % size == 0:
            count = seconds // size
            return f"{count} {word}" if count == 1 else f"{count} {word}s"
    return f"{seconds} s"


def _options(driver: Driver) -> str:
    return ", ".join(f"`{name}`" for name in sorted(driver.options)) or "none"


def _changes(driver: Driver) -> str:
    return ", ".join(sorted(driver.live_changes)) or "nothing"


def table(*, short: bool) -> str:
    """Give the table, whole or short."""
    fields = [row.field for row in ROWS]
    if fields != list(Capabilities.__struct_fields__):
        odd = sorted(set(fields) ^ set(Capabilities.__struct_fields__))
        raise SystemExit(f"the rows are not those of the capabilities, in their order; check {odd or 'the order'}")
    drivers = list(DRIVERS.values())
    lines = [
        ["", *(f"`{driver.name}`" for driver in drivers)],
        ["accepted versions", *(driver.versions for driver in drivers)],
        *([row.meaning, *_cells(row, drivers)] for row in ROWS if row.short or not short),
    ]
    if not short:
        further: tuple[tuple[str, Callable[[Driver], str]], ...] = (
            ("what a session can set at its start, beside model and modes", _options),
            ("what can be changed while it runs", _changes),
        )
        lines += [[meaning, *map(of, drivers)] for meaning, of in further]
    head, *rows = [f"| {' | '.join(cells)} |\n" for cells in lines]
    return f"{head}|{'---|' * (len(drivers) + 1)}\n{''.join(rows)}"


def _cells(row: Row, drivers: list[Driver]) -> list[str]:
    return [_cell(getattr(driver.capabilities, row.field)) for driver in drivers]


def pages() -> dict[Path, str]:
    """Give each file as it should be.

    Raises:
        SystemExit: the README has no place for the table.
    """
    readme = ROOT / "README.md"
    before, begin, rest = readme.read_text(encoding="utf-8").partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not (begin and end):
        raise SystemExit(f"{readme} has no place for the table: {_BEGIN!r}, and after it {_END!r}")
    return {
        ROOT / "docs" / "agents.md": _HEAD + table(short=False) + _TAIL,
        readme: f"{before}{begin}\n{table(short=True)}\n{end}{after}",
    }


def main() -> None:
    """Write, or check."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing, and exit 1 if anything is stale")
    check = parser.parse_args().check
    stale = [path for path, text in pages().items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    if check and stale:
        sys.exit(f"stale, run `make docs`: {', '.join(str(path.relative_to(ROOT)) for path in stale)}")
    if not check:
        for path, text in pages().items():
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
