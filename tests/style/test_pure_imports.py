"""What the pure core and the parent process import, read from their source and not from what happens to be loaded."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DAEMON = ROOT / "daemon" / "steprail_daemon"

# Without clock, randomness, environment, I/O, logging or concurrency. Add a module only if it has none of them either.
PURE_STANDARD_LIBRARY = {
    "__future__",
    "abc",
    "base64",
    "binascii",
    "bisect",
    "collections",
    "collections.abc",
    "copy",
    "dataclasses",
    "decimal",
    "enum",
    "fnmatch",
    "fractions",
    "functools",
    "hashlib",
    "heapq",
    "itertools",
    "json",
    "math",
    "operator",
    "posixpath",
    "re",
    "shlex",
    "string",
    "textwrap",
    "types",
    "typing",
    "unicodedata",
}
CORE_MAY_IMPORT = PURE_STANDARD_LIBRARY | {"msgspec"}


def imports(source: str) -> set[str]:
    """Name every module that a source imports, also inside functions; a call of `__import__` counts as one."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                found.update(name.name for name in names)
            case ast.ImportFrom(module=module, level=level):
                found.add("." * level + (module or ""))
            case ast.Name(id="__import__"):
                found.add("__import__")
    return found


def foreign_to_core(source: str) -> set[str]:
    """Say which imports of a source the core may not have."""
    return {
        name
        for name in imports(source)
        if name not in CORE_MAY_IMPORT and name.partition(".")[0] != "msgspec" and not is_core(name)
    }


def is_core(name: str) -> bool:
    return name == "steprail_daemon.core" or name.startswith("steprail_daemon.core.")


def modules(*names: str) -> list[Path]:
    return sorted(path for name in names for path in [*DAEMON.glob(f"{name}.py"), *DAEMON.glob(f"{name}/**/*.py")])


@pytest.mark.parametrize("path", modules("core"), ids=lambda path: str(path.relative_to(DAEMON)))
def test_core_imports_pure_modules_only(path: Path) -> None:
    assert foreign_to_core(path.read_text()) == set()


@pytest.mark.parametrize("path", modules("parent"), ids=lambda path: str(path.relative_to(DAEMON)))
def test_the_parent_process_imports_the_standard_library_only(path: Path) -> None:
    tops = {
        name.partition(".")[0] for name in imports(path.read_text()) if not name.startswith("steprail_daemon.parent")
    }
    assert tops - sys.stdlib_module_names == set()


def test_the_core_is_where_this_test_looks() -> None:
    assert DAEMON / "core" / "model.py" in modules("core")


@pytest.mark.parametrize(
    "line",
    [
        "import os",
        "import os.path",
        "from time import monotonic_ns",
        "from datetime import datetime",
        "from steprail_daemon.engine import ports",
        "from . import model",
        "def late():\n    import random",
        "clock = __import__('time')",
        "import importlib",
    ],
)
def test_an_impure_import_is_noticed(line: str) -> None:
    assert foreign_to_core(f"import json\nimport msgspec.json\nimport steprail_daemon.core.model\n{line}\n") != set()
