"""The page about expressions says what the code does: its examples compile, and it names every field."""

import re
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor

from steprail_daemon.expressions.compiler import environments
from steprail_daemon.expressions.messages import view_pb2, worker_pb2

PAGE = (Path(__file__).parents[3] / "docs" / "expressions.md").read_text()
EXAMPLES = re.findall(r"^```cel(| permission)\n(.*?)\n```$", PAGE, re.MULTILINE | re.DOTALL)
ENVIRONMENTS = environments()


def test_there_are_examples_of_both_kinds() -> None:
    assert {kind for kind, _ in EXAMPLES} == {"", " permission"}


@pytest.mark.parametrize(("kind", "source"), EXAMPLES)
def test_an_example_compiles(kind: str, source: str) -> None:
    number = worker_pb2.KIND_PERMISSION_RULE if kind else worker_pb2.KIND_STOP_RULE
    ENVIRONMENTS[number].compile(source)


@pytest.mark.parametrize(
    "message", list(view_pb2.DESCRIPTOR.message_types_by_name.values()), ids=lambda item: item.name
)
def test_every_field_of_the_view_is_on_the_page(message: Descriptor) -> None:
    assert [name for name in message.fields_by_name if f"`{name}`" not in PAGE] == []
