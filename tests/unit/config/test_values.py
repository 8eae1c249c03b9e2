"""Values are read and written back unchanged."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steprail_daemon.config import schema, values
from steprail_daemon.config.lines import key_lines, line_of
from steprail_daemon.drivers.registry import DRIVERS
from steprail_daemon.supervisor.environment import EnvironmentRefused, build_environment


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("250ms", 250_000_000),
        ("0.5s", 500_000_000),
        ("60s", 60_000_000_000),
        ("10m", 600_000_000_000),
        ("1.5h", 5_400_000_000_000),
        (" 6h ", 21_600_000_000_000),
    ],
)
def test_a_span_is_read_in_nanoseconds(text: str, nanoseconds: int) -> None:
    assert values.duration().read(text) == nanoseconds


@given(st.integers(min_value=1, max_value=720 * 3_600_000))
def test_a_span_is_written_so_that_it_reads_the_same(milliseconds: int) -> None:
    kind = values.duration()
    assert kind.read(tomllib.loads(f"x = {kind.write(milliseconds * 1_000_000)}")["x"]) == milliseconds * 1_000_000


@given(st.integers(min_value=0, max_value=1 << 40))
def test_a_size_is_written_so_that_it_reads_the_same(size: int) -> None:
    kind = values.size("0B", "1024GiB")
    assert kind.read(tomllib.loads(f"x = {kind.write(size)}")["x"]) == size


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_string_is_quoted_as_toml(text: str) -> None:
    assert tomllib.loads(f"x = {values.quote(text)}") == {"x": text}


KEYS = st.sampled_from(["a", "b-c", '"d.e"', "'f'", '"\\u0067"'])
CONTENTS = st.sampled_from(
    [
        "1",
        '"x # [y]"',
        "'''\n[no]\nx = 1\n'''",
        '"""\\"""" # end',
        "[\n 1, # one\n [2],\n]",
        "{ i = { j = 1 } }",
        '"\\""',
    ]
)


@given(
    st.lists(st.tuples(KEYS, CONTENTS, st.sampled_from(["", "# note [x]\n", "\n"])), unique_by=lambda entry: entry[0])
)
def test_the_line_of_each_key_is_found_whatever_stands_between(entries: list[tuple[str, str, str]]) -> None:
    text, expected = "", {}
    for key, content, between in entries:
        text += between + ("" if text else "\n[table]\n")
        expected[key] = text.count("\n") + 1
        text += f"  {key} = {content} # comment\n"
    lines = key_lines(text)
    assert len(tomllib.loads(text).get("table", {})) == len(entries)
    assert [line for path, line in lines.items() if len(path) == 2] == list(expected.values())


def test_a_key_in_an_inline_table_has_the_line_of_the_table() -> None:
    lines = key_lines("[a.b]\nc = { d = 1 }\n")
    assert line_of(("a", "b", "c", "d"), lines) == 2
    assert line_of(("a", "b"), lines) == 1
    assert line_of(("z",), lines) is None


@given(
    st.sampled_from(["", "LD_", "DYLD_", "STEPRAIL_", "LD", "ld_", "XLD_"]),
    st.from_regex(r"[A-Za-z_][A-Za-z0-9_]*", fullmatch=True),
    st.sampled_from(["", "-", "=", "\0"]),
)
def test_a_name_that_the_configuration_takes_is_one_that_an_agent_may_be_given(
    beginning: str, name: str, ending: str
) -> None:
    # Two rooms that may not know each other hold this rule: what passed here must not break the start there.
    name = beginning + name + ending
    try:
        values.environment_name().read(name)
    except ValueError:
        assert ending or name.startswith(("LD_", "DYLD_", "STEPRAIL_"))
        return
    try:
        build_environment([name], {name: "x"}, {})
    except EnvironmentRefused as refused:
        pytest.fail(str(refused))


def test_the_configuration_knows_the_drivers_that_there_are() -> None:
    assert set(schema.DRIVERS) == set(DRIVERS)
