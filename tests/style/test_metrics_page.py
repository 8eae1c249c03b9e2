"""The page about metrics is what the declarations give."""

from pathlib import Path

from steprail_daemon.observability import document

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_committed_page_is_fresh(tmp_path: Path) -> None:
    document.main(str(tmp_path))
    assert (DOCS / document.PAGE).read_text() == (tmp_path / document.PAGE).read_text(), (
        "run python -m steprail_daemon.observability.document docs"
    )
