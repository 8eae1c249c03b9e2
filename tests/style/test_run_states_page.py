"""The page about the states of a run is what the table gives."""

from pathlib import Path

from steprail_daemon.core import diagram

PAGE = Path(__file__).resolve().parents[2] / "docs" / "run-states.md"


def test_the_committed_page_is_fresh() -> None:
    assert PAGE.read_text() == diagram.page(), "run python -m steprail_daemon.core.diagram >docs/run-states.md"
