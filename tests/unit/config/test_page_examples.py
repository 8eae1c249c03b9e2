"""Configurations in pages can be used as they are."""

import pytest
from tests.framework.pages import PAGES, Block, blocks
from tests.unit.config.conftest import Loader

EXAMPLES = [block for page in PAGES for block in blocks(page, "toml")]
#: What the page has said before: who may come in over TCP.
IDENTITY = '\n[[identities]]\nname = "before"\ntoken_file = "token"\nrole = "operator"\n'
TCP = '\n[server]\nlisten = ["127.0.0.1:7443"]\n'


def test_there_are_some() -> None:
    assert {block.page for block in EXAMPLES} >= {"deploy/README.md", "docs/access.md", "docs/permissions.md"}


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_an_example_loads(example: Block, loader: Loader) -> None:
    # The page has it made; here the test's own directory is there.
    text = example.text.replace('"/srv/agents"', '"."')
    if "[server.tls]" in text and "[[identities]]" not in text:
        text += IDENTITY
    if "[[identities]]" in text and "[server" not in text:
        text += TCP
    loaded = loader.load(text)
    assert loaded.path == loader.file
