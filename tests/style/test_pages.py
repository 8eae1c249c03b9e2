"""Pages that are generated are fresh, links lead somewhere, and what pages say of tests and pictures is so."""

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest
from tests.framework.pages import ROOT, anchors, prose

TRACKED = subprocess.run(
    ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"],
    cwd=ROOT,
    capture_output=True,
    text=True,
    timeout=30,
    check=True,
).stdout.split("\0")
#: Pages of ours.
MARKDOWN = sorted(ROOT / name for name in TRACKED if name and (ROOT / name).is_file())
BEHAVIOURS = ROOT / "docs" / "behaviours.md"


def broken_links(page: Path) -> list[str]:
    """Give the links of a page that lead nowhere within the repository."""
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if "://" in link:
            continue
        name, _, anchor = unquote(link).partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", MARKDOWN, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    assert broken_links(page) == []


def test_links_that_lead_nowhere_are_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A heading, here\n[a](#a-heading-here) [b](#elsewhere) [c](gone.md) [d](https://example.org/x)\n")
    assert broken_links(page) == ["#elsewhere", "gone.md"]


@pytest.mark.parametrize("page", MARKDOWN, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_that_a_page_names_is_there(page: Path) -> None:
    """Paths as seen from the root of the repository, in code spans; `<name>` and `*` stand for anything."""
    tops = "clients|daemon|deploy|docs|examples|protos|requirements|scripts|tests"
    names = re.findall(rf"`((?:{tops})/[^`\s]*)`", prose(page))
    patterns = {name: re.sub(r"<[^>]*>", "*", name.partition("::")[0]).rstrip("/") for name in names}
    missing = {name for name, pattern in patterns.items() if not list(ROOT.glob(pattern))}
    assert missing == set()


def test_every_page_of_the_documentation_is_in_its_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    names = {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert len(names) > 15
    assert sorted(name for name in names if f"({name}" not in index) == []


def test_what_agents_can_do_is_what_their_drivers_declare() -> None:
    check = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "agents_page.py"), "--check"],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (check.returncode, check.stderr) == (0, "")


def behaviours() -> dict[str, str]:
    """Give the rows of the page of behaviours by their ids."""
    return dict(re.findall(r"^\| (T\d+) \| (.*) \|$", BEHAVIOURS.read_text(), re.MULTILINE))


def test_the_page_of_behaviours_has_each_case_once_and_in_order() -> None:
    ids = re.findall(r"^\| (T\d+) ", BEHAVIOURS.read_text(), re.MULTILINE)
    assert ids == [f"T{number}" for number in range(1, len(ids) + 1)]
    assert list(behaviours()) == ids
    assert len(ids) >= 15


def test_every_test_of_a_behaviour_stands_in_the_row_of_its_case() -> None:
    rows = behaviours()
    tests = sorted((ROOT / "tests" / "behaviours").glob("test_t[0-9]*_*.py"))
    assert len(tests) > 10
    for test in tests:
        number = re.match(r"test_t0*(\d+)_", test.name)
        assert number is not None, test
        assert f"(../tests/behaviours/{test.name})" in rows[f"T{number[1]}"], test.name


def test_a_behaviour_without_a_test_says_that_it_is_to_come() -> None:
    without = {case for case, row in behaviours().items() if "(../tests/" not in row}
    assert all("To come" in behaviours()[case] for case in without)
    assert len(without) <= 1
