"""What holds for every example: its form, and what it says where it cannot work."""

from __future__ import annotations

import ast
import re

import pytest
from tests.framework.examples import PROGRAMS, ROOT, Examples

SOURCES = ROOT / "examples" / "python"
#: What each needs beside the options that all have.
NEEDED = {
    "batch": ("Look around", "."),
    "review_steps": ("Look around",),
    "stop_look_continue": ("Look around",),
    "stream_server": ("--port", "0"),
}


def test_each_example_is_tested_here_and_listed_in_the_readme() -> None:
    assert sorted(NEEDED) == PROGRAMS
    listed = re.findall(r"\(python/(\w+)\.py\)", (ROOT / "examples" / "README.md").read_text())
    assert sorted(listed) == PROGRAMS


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_example_is_short_says_how_to_start_it_and_uses_what_is_public(name: str) -> None:
    text = (SOURCES / f"{name}.py").read_text()
    assert 30 <= len(text.splitlines()) <= 150
    tree = ast.parse(text)
    assert f"    python {name}.py " in (ast.get_docstring(tree) or "")
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    modules |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    ours = {module for module in modules if module and module.partition(".")[0].startswith("steprail")}
    assert ours <= {"steprail", "steprail.client", "steprail.plain", "steprail.v1"}
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not {name for name in used if name.startswith("_")}


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_example_without_a_daemon_says_so_in_one_sentence(name: str, examples: Examples) -> None:
    address = f"unix:{examples.cwd}/no.sock"
    done = examples.run(name, *NEEDED[name], "--agent", "scripted", "--address", address)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"{name}: no daemon answers at {address} (there is no such socket); start one with `steprail serve`, or set "
        "STEPRAIL_ADDRESS\n"
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_example_names_the_agents_there_are_for_one_that_is_not(name: str, examples: Examples) -> None:
    done = examples.run(name, *NEEDED[name], "--agent", "nobody")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"{name}: ")
    assert len(done.stderr.splitlines()) == 1
    assert "'nobody'" in done.stderr
    assert "asking, claude, scripted" in done.stderr


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_example_explains_its_options(name: str, examples: Examples) -> None:
    done = examples.run(name, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    for option in ("--agent", "--address", "batch" if name == "batch" else "--cwd"):
        assert option in done.stdout
