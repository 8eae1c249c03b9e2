"""The import contracts of pyproject.toml hold, and each of them notices what it is there for."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DAEMON = Path("daemon/steprail_daemon")
CLIENT = Path("clients/python/src/steprail")
SCRIPTED = Path("daemon/steprail_scripted")
CONTRACTS = [
    contract["name"]
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
]

# For each contract: modules to add to a copy of the tree, and what they say.
PLANTS: dict[str, dict[Path, str]] = {
    "layers": {DAEMON / "core/planted.py": "import steprail_daemon.engine"},
    "pure code does no I/O": {DAEMON / "core/planted.py": "import time"},
    "protobuf only at the edge": {DAEMON / "journal/planted.py": "from steprail.v1 import runs_pb2"},
    "asyncio only where a reader callback needs it": {DAEMON / "service/planted.py": "import asyncio"},
    "drivers do not know each other": {
        DAEMON / "drivers/planted_one/__init__.py": "",
        DAEMON / "drivers/planted_two/__init__.py": "import steprail_daemon.drivers.planted_one",
    },
    "engine sees protocols, not back ends": {
        DAEMON / "journal/planted_store.py": "",
        DAEMON / "engine/planted.py": "import steprail_daemon.journal.planted_store",
    },
    "service sees the facade only": {
        DAEMON / "engine/planted_inner.py": "",
        DAEMON / "service/planted.py": "import steprail_daemon.engine.planted_inner",
    },
    "observability hears core events only": {DAEMON / "observability/planted.py": "import steprail_daemon.journal"},
    "command line goes through daemon, config and the client": {
        DAEMON / "cli/planted.py": "import steprail_daemon.service"
    },
    "expressions know core, protobuf and CEL": {
        DAEMON / "expressions/planted.py": "import steprail_daemon.config",
    },
    "CEL is loaded by the expressions' worker only": {
        DAEMON / "engine/planted.py": "from cel_expr_python import cel",
    },
    "the daemon's side of expressions does not load CEL": {
        DAEMON / "expressions/client.py": "import steprail_daemon.expressions.planted",
        DAEMON / "expressions/planted.py": "import steprail_daemon.expressions.compiler",
    },
    "parent process is standard library only": {
        DAEMON / "parent/planted.py": "import anyio",
    },
    "client never imports the daemon": {CLIENT / "planted.py": "import steprail_daemon"},
    "built-in agent knows nothing of ours": {SCRIPTED / "planted.py": "import steprail_daemon.core.model"},
    "nobody imports the built-in agent": {DAEMON / "drivers/planted.py": "import steprail_scripted.rpc"},
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Copy what import-linter reads."""
    for package in (DAEMON, CLIENT, SCRIPTED):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def plant(tree: Path, modules: dict[Path, str]) -> None:
    for path, text in modules.items():
        (tree / path).parent.mkdir(exist_ok=True)
        with (tree / path).open("a") as file:
            file.write(f"\n{text}\n")


def lint(tree: Path) -> tuple[dict[str, str], str]:
    """Run import-linter on a tree; return each contract's verdict and the whole report."""
    path = os.pathsep.join([str(tree / DAEMON.parent), str(tree / CLIENT.parent)])
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache", "--no-logo"],
        cwd=tree,
        env={"PYTHONPATH": path, "PATH": os.environ["PATH"], "COLUMNS": "500"},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    report = done.stdout + done.stderr
    verdicts = dict(re.findall(r"^(.+) (KEPT|BROKEN)\b", report, re.MULTILINE))
    assert done.returncode == (1 if "BROKEN" in verdicts.values() or not verdicts else 0), report
    return verdicts, report


def test_every_contract_is_kept_by_the_tree(tree: Path) -> None:
    verdicts, report = lint(tree)
    assert verdicts == dict.fromkeys(CONTRACTS, "KEPT"), report


def test_every_contract_has_a_planted_violation() -> None:
    assert sorted(PLANTS) == sorted(CONTRACTS)


@pytest.mark.parametrize("contract", CONTRACTS)
def test_a_planted_violation_breaks_its_contract(contract: str, tree: Path) -> None:
    plant(tree, PLANTS[contract])
    verdicts, report = lint(tree)
    assert verdicts.get(contract) == "BROKEN", report
    assert "planted" in report, report


def test_a_room_that_no_layer_names_breaks_the_layers(tree: Path) -> None:
    plant(tree, {DAEMON / "attic/__init__.py": ""})
    verdicts, report = lint(tree)
    assert verdicts.get("layers") == "BROKEN", report
    assert "attic" in report
