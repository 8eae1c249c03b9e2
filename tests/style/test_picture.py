"""The picture in the README, and how it is drawn from what the demonstration wrote."""

import re
from pathlib import Path

from scripts.picture import draw, drawn_lines

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "picture.svg"
WRITTEN = """Claude Code: looking for the tested version ...

\x1b[1m$ steprail serve &\x1b[0m

\x1b[1m$ steprail run -C /tmp/x "Look around"\x1b[0m
  > \x1b[36mBash\x1b[0m {"command":"ls <here> & there"}
\x1b[33m\x1b[1mstopped\x1b[0m after 1 step

\x1b[1m$ steprail show run_1\x1b[0m
left out

\x1b[1m$ steprail continue run_1\x1b[0m
\x1b[32m\x1b[1mcompleted\x1b[0m after 2 steps

The daemon was told to end (SIGTERM); it drained and ended with 0.
\x1b[1m
What happened\x1b[0m
  4 in all
"""


def test_what_is_drawn_are_the_two_runs_and_the_closing_lines() -> None:
    assert [line.plain for line in drawn_lines(WRITTEN) if line.plain] == [
        '$ steprail run -C /tmp/x "Look around"',
        '  > Bash {"command":"ls <here> & there"}',
        "stopped after 1 step",
        "$ steprail continue run_1",
        "completed after 2 steps",
        "What happened",
        "  4 in all",
    ]


def test_colours_and_signs_of_the_lines_are_in_the_picture() -> None:
    svg = draw(drawn_lines(WRITTEN))
    assert harmless(svg)
    assert "&lt;here&gt;&#160;&amp;&#160;there" in svg
    (stopped,) = re.findall(r'<text class="terminal-(r\d+)"[^>]*>stopped<', svg)
    (completed,) = re.findall(r'<text class="terminal-(r\d+)"[^>]*>completed<', svg)
    assert stopped != completed
    assert all(
        re.search(rf"\.terminal-{name} {{ fill: #\w+;font-weight: bold }}", svg) for name in (stopped, completed)
    )


def harmless(svg: str) -> bool:
    """Whether a picture fetches nothing and runs nothing."""
    addresses = re.findall(r"https?://[^\"'\s)]+", svg)
    return addresses == ["http://www.w3.org/2000/svg"] and not re.search(
        r"(?i)@import|@font-face|url\((?!#)|<script|<image|href", svg
    )


def test_the_picture_is_small_and_fetches_nothing() -> None:
    svg = PICTURE.read_text()
    assert len(svg.encode()) < 60_000
    assert harmless(svg)


def test_the_picture_shows_a_run_that_was_stopped_and_continued() -> None:
    drawn = PICTURE.read_text().partition('<g class="terminal-matrix">')[2]
    shown = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", drawn).replace("&#160;", " "))
    story = ("$ steprail run", "--stop-when steps=1", "stopped", "$ steprail continue run_", "completed")
    places = [shown.find(part) for part in (*story, "while it was stopped: 0 requests to the model")]
    assert -1 not in places
    assert places == sorted(places)
