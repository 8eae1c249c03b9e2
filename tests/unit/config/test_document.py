"""The reference page and the sample file follow the schema."""

from dataclasses import replace
from pathlib import Path

from tests.unit.config.conftest import Loader

from steprail_daemon.config import document
from steprail_daemon.config.load import all_keys, load_config

DOCS = Path(__file__).resolve().parents[3] / "docs"


def test_the_committed_page_and_sample_are_what_the_schema_gives(tmp_path: Path) -> None:
    document.main(str(tmp_path))
    for name in (document.PAGE, document.SAMPLE):
        assert (DOCS / name).read_text() == (tmp_path / name).read_text(), (
            "run python -m steprail_daemon.config.document docs"
        )


def test_the_sample_with_every_line_uncommented_gives_the_defaults(loader: Loader) -> None:
    lines = document.sample().splitlines()
    keys = {".".join(path[-length:]) for path in all_keys(["claude"]) for length in (1, 2)}
    active = [
        line.removeprefix("# ") if line.removeprefix("# ").partition(" = ")[0] in keys else line for line in lines
    ]
    loaded = loader.load("\n".join(active))
    defaults = loader.load().config
    # Naming an agent leaves the others out.
    assert loaded.config == replace(defaults, agents={"claude": defaults.agents["claude"]})
    assert "default" not in loaded.sources.values()


def test_the_sample_as_it_is_changes_nothing(loader: Loader) -> None:
    assert loader.load(document.sample()).config == load_config({}, loader.environ, uid=1000).config


def test_every_key_is_on_the_page() -> None:
    page = document.page()
    missing = [
        path for path in all_keys(["claude"]) if f"| `{path[-1]}` |" not in page and f".{path[-1]}` |" not in page
    ]
    assert missing == []
