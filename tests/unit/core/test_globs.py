"""Globs over names of tools and over paths."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steprail_daemon.core.globs import name_matches, path_matches


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("read_*", "read_file", True),
        ("read_*", "Read_file", False),
        ("read_*", "xread_file", False),
        ("*", "", True),
        ("a?c", "abc", True),
        ("a?c", "ac", False),
        ("[ab]", "a", False),
        ("[ab]", "[ab]", True),
        ("a.c", "abc", False),
        ("*\n*", "a\nb", True),
        ("mcp__*__list", "mcp__x__y__list", True),
    ],
)
def test_only_star_and_question_mark_are_special_in_a_name(pattern: str, name: str, matches: bool) -> None:
    assert name_matches(pattern, name) is matches


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("src/*", "src/a.py", True),
        ("src/*", "src/sub/a.py", False),
        ("src/**", "src/sub/a.py", True),
        ("src/**", "src", False),
        ("**/secrets.txt", "secrets.txt", True),
        ("**/secrets.txt", "a/b/secrets.txt", True),
        ("**/secrets.txt", "a/b/xsecrets.txt", False),
        ("a/**/b", "a/b", True),
        ("a/**/b", "a/x/y/b", True),
        ("?.py", "a.py", True),
        ("?.py", "/.py", False),
        ("**", "any/thing", True),
        (".env*", ".env.local", True),
        ("a/**/**/b", "a/b", True),
        ("/etc/**", "/etc/ssl/x", True),
        ("/etc/**", "/etcetera/x", False),
        ("a**b", "axb", True),
        ("a**b", "ax/b", False),
        ("**/" * 60 + "x", "y/" * 2000 + "z", False),
    ],
)
def test_two_stars_span_directories_and_one_does_not(pattern: str, path: str, matches: bool) -> None:
    assert path_matches(pattern, path) is matches


@given(text=st.text().filter(lambda text: "*" not in text and "?" not in text))
def test_a_pattern_without_signs_matches_itself_alone(text: str) -> None:
    assert name_matches(text, text)
    assert path_matches(text, text)
    assert not name_matches(text, text + "x")
