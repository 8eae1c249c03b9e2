"""The page about the command line and the README speak of what there is."""

import re
from pathlib import Path

from steprail_daemon.cli.live import EXIT_STATUS
from steprail_daemon.cli.main import COMMANDS

ROOT = Path(__file__).resolve().parents[3]


def test_the_page_has_every_command_and_no_other() -> None:
    table = (ROOT / "docs/command-line.md").read_text().partition("|---|---|\n")[2].partition("\n\n")[0]
    cells = [line.split(" | ")[0] for line in table.splitlines()]
    assert {name for cell in cells for name in re.findall(r"`([a-z]+)\b", cell)} - {"stop"} == set(COMMANDS) - {"stop"}
    assert any(cell.startswith("| `stop RUN`") for cell in cells)


def test_the_page_has_the_status_of_each_end() -> None:
    page = (ROOT / "docs/command-line.md").read_text()
    for state, status in EXIT_STATUS.items():
        assert re.search(rf"^\| {status} \|.*{state}", page, re.MULTILINE), state


def test_the_readme_names_verbs_and_files_that_exist() -> None:
    readme = (ROOT / "README.md").read_text()
    verbs = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {"demo", "test", "setup"} <= set(re.findall(r"(?:^    |`)make ([a-z]+)", readme, re.MULTILINE)) <= verbs
    paths = [path for path in re.findall(r"`([\w./-]+)`", readme) if "/" in path or path.endswith(".md")]
    assert len(paths) > 5
    assert [path for path in paths if not path.startswith(".venv/") and not (ROOT / path).exists()] == []
