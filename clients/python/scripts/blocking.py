# ruff: noqa: INP001 - run as a file, never imported as a package
"""Generate the blocking twins of the client's classes, or check that they are what this gives.

    python clients/python/scripts/blocking.py            write them
    python clients/python/scripts/blocking.py --check    exit 1 and name each that is stale

Each public method becomes one of the same name, signature and words, which waits for the asynchronous one.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[1] / "src" / "steprail" / "client"
TARGETS = SOURCES / "_blocking"

_BOUND_SECONDS = 60


@dataclass(frozen=True)
class Twin:
    """A class and its blocking twin: module and class of both."""

    source: str
    name: str
    target: str
    twin: str


TWINS = (
    Twin("_sessions", "SessionCalls", "calls_sessions", "SyncSessionCalls"),
    Twin("_runs", "RunCalls", "calls_runs", "SyncRunCalls"),
    Twin("_answers", "AnswerCalls", "calls_answers", "SyncAnswerCalls"),
    Twin("_streams", "StreamCalls", "calls_streams", "SyncStreamCalls"),
    Twin("_client", "Client", "calls_client", "SyncClientCalls"),
    Twin("_control", "Control", "control", "SyncControl"),
    Twin("_live", "LiveRun", "live", "SyncRun"),
)
#: What becomes of the types that have a twin.
_TYPES = {"Control": "SyncControl", "LiveRun": "SyncRun"}
#: Written by hand, since it makes another client, or what has no blocking form.
_BY_HAND = {"with_options", "__await__"}
_SPECIAL = {"__aenter__": "__enter__", "__aexit__": "__exit__", "__aiter__": "__iter__"}
_WORDS = (
    (r"`async with`( \(SyncClient: `with`\))?", "`with`"),
    (r"`async for ", "`for "),
    (r"`await run`", "`run.wait()`"),
    (r"Use it with `with`", "Use it with `with`"),
)


def render(twin: Twin) -> str:
    """Give the module of a twin."""
    tree = ast.parse((SOURCES / f"{twin.source}.py").read_text("utf-8"))
    found = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == twin.name)
    methods = [text for node in found.body if (text := _method(node, twin))]
    doc = _words(ast.get_docstring(found, clean=True) or "")
    used = [name for name in _TYPES.values() if name != twin.twin and any(name in text for text in methods)]
    lines = [
        f'"""Generated from `steprail.client.{twin.source}` by scripts/blocking.py; never edited by hand."""',
        "from __future__ import annotations",
        *(
            ast.unparse(node)
            for node in tree.body
            if isinstance(node, ast.Import | ast.ImportFrom) and getattr(node, "module", "") != "__future__"
        ),
        "from collections.abc import Iterator",
        f"from steprail.client.{twin.source} import {twin.name}",
        *(["from steprail.client._live import OnExit"] if twin.source == "_live" else []),
        "from steprail.client._client import Client",
        "from steprail.client._blocking.portal import Blocking",
        *(f"from steprail.client._blocking.{t.target} import {t.twin}" for t in TWINS if t.twin in used),
        "",
        f"class {twin.twin}(Blocking[{'Client' if twin.target.startswith('calls_') else twin.name}]):",
        _docstring(doc, 4),
        *methods,
    ]
    return "\n".join(lines) + "\n"


def _method(node: ast.stmt, twin: Twin) -> str:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.name in _BY_HAND:
        return ""
    if twin.name == "Client" and node.name.startswith("__"):
        return ""
    name = _SPECIAL.get(node.name, node.name)
    if name == node.name and name.startswith("_"):
        return ""
    returns = ast.unparse(node.returns) if node.returns is not None else "None"
    body, returns = _body(node, returns, twin)
    signature = ast.unparse(node.args)
    decorators = "".join(f"    @{ast.unparse(decorator)}\n" for decorator in node.decorator_list)
    doc = _docstring(_words(ast.get_docstring(node, clean=True) or ""), 8)
    return f"{decorators}    def {name}({signature}) -> {returns}:\n{doc}\n        {body}\n"


def _body(node: ast.FunctionDef | ast.AsyncFunctionDef, returns: str, twin: Twin) -> tuple[str, str]:
    """Give the statement of a method, and what it returns."""
    target = f"self._calls.{node.name}"
    if any(isinstance(decorator, ast.Name) and decorator.id == "property" for decorator in node.decorator_list):
        return f"return {target}", returns
    call = f"{target}({_arguments(node.args)})"
    items = re.fullmatch(r"AsyncIterator\[(.*)\]", returns)
    if items is not None:
        return f"return self._portal.iterate({call})", f"Iterator[{items[1]}]"
    if isinstance(node, ast.FunctionDef):
        blocking = _TYPES.get(returns)
        return (f"return {blocking}({call}, self._portal)", blocking) if blocking else (f"return {call}", returns)
    if node.name == "__aenter__":
        return f"_ = self._portal.wait({call})\n        return self", twin.twin
    statement = "" if returns == "None" else "return "
    return f"{statement}self._portal.wait({call})", returns


def _arguments(arguments: ast.arguments) -> str:
    positional = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)][1:]
    return ", ".join([*positional, *(f"{argument.arg}={argument.arg}" for argument in arguments.kwonlyargs)])


def _words(text: str) -> str:
    for pattern, word in _WORDS:
        text = re.sub(pattern, word, text)
    return text


def _docstring(text: str, indent: int) -> str:
    pad = " " * indent
    lines = text.splitlines()
    if len(lines) == 1:
        return f'{pad}"""{text}"""'
    rest = "\n".join(pad + line if line else "" for line in lines[1:])
    return f'{pad}"""{lines[0]}\n{rest}\n{pad}"""'


def tidy(text: str, path: Path) -> str:
    """Give the text without imports that it does not use, sorted and formatted."""
    ruff = Path(sys.executable).with_name("ruff")
    for command in (["check", "--fix-only", "--quiet", "--select", "F401,I,F811"], ["format", "--quiet"]):
        text = subprocess.run(
            [ruff, *command, "--stdin-filename", path, "-"],
            input=text,
            capture_output=True,
            text=True,
            timeout=_BOUND_SECONDS,
            check=True,
        ).stdout
    return text


def modules() -> dict[Path, str]:
    """Give the text of each module, by its path."""
    paths = {TARGETS / f"{twin.target}.py": twin for twin in TWINS}
    return {path: tidy(render(twin), path) for path, twin in paths.items()}


def main() -> int:
    """Run the command line; the result is the exit code."""
    parser = argparse.ArgumentParser(description="Generate the blocking client.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if something is stale")
    check = parser.parse_args().check
    stale = [path for path, text in modules().items() if not path.exists() or path.read_text("utf-8") != text]
    for path in stale:
        if check:
            sys.stderr.write(f"stale: {path}\n")
        else:
            path.write_text(modules()[path], "utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
