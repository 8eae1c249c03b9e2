"""Record the demonstration in a terminal and draw it: `docs/picture.svg`, the picture in the README.

`steprail demo` runs as it does for a user, in a pseudo-terminal, with its colours. What is drawn are its lines as they
came: the stopped run, the continued one and what is claimed at the end; the commands between them are left out. Ids,
times and the name of the temporary directory are those of that run, so that each picture differs.

The fonts are those of whoever looks, and nothing is fetched. The picture brings its own background, so that it can be
read on a light page and on a dark one.

    python scripts/picture.py docs/picture.svg
"""

import fcntl
import io
import os
import pty
import struct
import subprocess
import sys
import tempfile
import termios
import threading
from pathlib import Path

from rich.ansi import AnsiDecoder
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

#: The demonstration fetches Claude Code at the first time.
_LIMIT_SECONDS = 900
#: Wide enough that the demonstration's longest line is one line.
_COLUMNS, _ROWS = 160, 50
#: What is drawn: the commands, each with what follows it up to the next one, and the closing lines.
_DRAWN = ("$ steprail run ", "$ steprail continue ", "What happened")
_SHOWN_AS = "steprail demo"

_THEME = TerminalTheme(
    (27, 31, 36),
    (208, 215, 222),
    [(72, 79, 88), (255, 123, 114), (86, 211, 100), (227, 179, 65), (121, 192, 255), (210, 168, 255), (86, 212, 221),
     (208, 215, 222)],
    [(110, 118, 129), (255, 161, 152), (126, 231, 135), (242, 204, 96), (165, 214, 255), (226, 197, 255),
     (118, 227, 234), (240, 246, 252)],
)  # fmt: skip

#: Rich's own form names fonts at an address; this one takes what is there.
_FORM = (
    """<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img">
<title>"""
    + _SHOWN_AS
    + """: a run is stopped after one step, and continued</title>
<style>
.{unique_id}-matrix {{
  font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px;
}}
.{unique_id}-title {{ font-family: system-ui, sans-serif; font-size: 18px; font-weight: bold; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
)


def record() -> str:
    """Run the demonstration in a pseudo-terminal and give what it wrote.

    Raises:
        SystemExit: it failed, or took too long.
    """
    with tempfile.TemporaryDirectory(prefix="sr-") as temporary:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
        command = [str(Path(sys.executable).with_name("steprail")), "demo", "--directory", temporary]
        environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
        demo = subprocess.Popen(command, env=environment, stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        limit = threading.Timer(_LIMIT_SECONDS, demo.terminate)
        limit.start()
        try:
            written = _read_all(ours)
            code = demo.wait()
        finally:
            limit.cancel()
            os.close(ours)
    if code != 0:
        raise SystemExit(f"the demonstration ended with {code}, so there is nothing to draw:\n{written}")
    return written


def _read_all(terminal: int) -> str:
    parts = []
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # how Linux tells that nobody has the other side any more
            break
        if not part:
            break
        parts.append(part)
    return b"".join(parts).decode().replace("\r\n", "\n")


def drawn_lines(written: str) -> list[Text]:
    """Give the lines that are drawn, with their colours."""
    drawn: list[Text] = []
    drawing = False
    for line in AnsiDecoder().decode(written):
        line.rstrip()
        if line.plain.startswith(("$ ", "What happened")):
            drawing = line.plain.startswith(_DRAWN)
        elif line.plain.startswith("The daemon was told to end"):
            drawing = False
        if drawing:
            drawn.append(line)
    return drawn


def draw(lines: list[Text]) -> str:
    """Give the picture."""
    width = max(line.cell_len for line in lines)
    console = Console(
        width=width, record=True, file=io.StringIO(), force_terminal=True, color_system="truecolor", highlight=False
    )
    for line in lines:
        console.print(line, soft_wrap=True)
    svg = console.export_svg(title=_SHOWN_AS, theme=_THEME, code_format=_FORM, unique_id="terminal")
    return "".join(f"{line.rstrip()}\n" for line in svg.splitlines() if line.strip())


def main(path: str) -> None:
    """Write the picture."""
    Path(path).write_text(draw(drawn_lines(record())), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python scripts/picture.py FILE")
    main(sys.argv[1])
