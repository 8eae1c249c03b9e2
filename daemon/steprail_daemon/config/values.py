"""How the values of keys are written, and what they mean to the program.

Each kind reads a value as TOML gives it, says in words what it accepts, and writes a value back as TOML. Spans are
integers in nanoseconds, sizes integers in bytes. A value that is not accepted raises `ValueError` with what is wrong
with it; `Kind.accepted` completes the sentence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Generic, Protocol, TypeVar, cast

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")

NANOSECONDS = {"ms": 1_000_000, "s": 1_000_000_000, "m": 60_000_000_000, "h": 3_600_000_000_000}
#: Where spans may be so long.
DAYS = {**NANOSECONDS, "d": 24 * NANOSECONDS["h"]}
BYTES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
MAX_SPAN_NS = 720 * NANOSECONDS["h"]
MAX_PORT = 65_535
MAX_LABEL_KEY = 64
MAX_LABEL = 256
MAX_SOCKET_PATH = 107  # sizeof(sockaddr_un.sun_path) on Linux, less the closing NUL

#: By `ipaddress`'s own `is_loopback` an IPv4-mapped IPv6 address is one in some versions of Python, and in others not.
_LOOPBACK = (ip_network("127.0.0.0/8"), ip_network("::1/128"))
_NUMBER_AND_UNIT = re.compile(r"(\d+(?:\.\d+)?)([A-Za-z]+)")
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Beginnings of names that `supervisor.environment` never gives to an agent, and why.
_RESERVED = {
    "LD_": "belongs to the dynamic loader, which would run foreign code in every program of the agent",
    "DYLD_": "belongs to the dynamic loader, which would run foreign code in every program of the agent",
    "STEPRAIL_": "belongs to steprail itself, which marks its agents by such variables",
}
_HOST_AND_PORT = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:\[\]]+)):(\d{1,5})")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_RUNGS_WITH_TIME = ("end", "eof", "term")


class Kind(Protocol[T_co]):
    """How the value of a key is written."""

    @property
    def accepted(self) -> str:
        """What is accepted, in words that follow "accepted: "."""

    @property
    def expands(self) -> bool:
        """Whether `$NAME` and `${NAME}` in it stand for variables of the environment."""

    def read(self, value: object) -> T_co:
        """Read a value as TOML gives it.

        Raises:
            ValueError: it is not accepted; the message says what is wrong with it.
        """

    def from_text(self, text: str) -> object:
        """Give what TOML would give, for a value that the environment or a flag holds as bare text."""

    def write(self, value: object) -> str:
        """Write a value that `read` gave as TOML."""


def quote(text: str) -> str:
    """Write a string as TOML."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{show(value)} is not a string")
    if "\x00" in value:
        raise ValueError("it contains a NUL character")
    return value


def show(value: object) -> str:
    """Word a value as TOML gave it for a message; long ones are cut."""
    text = quote(value) if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= 80 else text[:77] + "..."


def expand(text: str, environ: Mapping[str, str]) -> str:
    """Put the environment's values for `$NAME` and `${NAME}`.

    Raises:
        ValueError: a variable is not set, or empty.
    """

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if not environ.get(name):
            raise ValueError(f"{quote(text)} needs the variable {name}, which is not set")
        return environ[name]

    return _VARIABLE.sub(value, text)


@dataclass(frozen=True)
class Whole:
    """A whole number within bounds."""

    low: int
    high: int
    expands = False

    @property
    def accepted(self) -> str:
        """The bounds."""
        return f"a whole number from {self.low} to {self.high}" if self.low < self.high else str(self.low)

    def read(self, value: object) -> int:
        """Read an integer; `true` is none."""
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"{show(value)} is not a whole number")
        if not self.low <= value <= self.high:
            raise ValueError(f"{value} is out of range")
        return value

    def from_text(self, text: str) -> object:
        """Read digits; what has none stays text, for `read` to refuse."""
        return int(text) if re.fullmatch(r"[+-]?\d{1,18}", text.strip()) else text

    def write(self, value: object) -> str:
        """Write the digits."""
        return str(value)


@dataclass(frozen=True)
class _Measured:
    """A number with a unit, kept as an integer of the smallest one."""

    low: int
    high: int
    units: Mapping[str, int]
    examples: str
    expands = False

    @property
    def accepted(self) -> str:
        """Form, units and bounds."""
        bounds = f"from {self.write(self.low)} to {self.write(self.high)}"
        return f"a number with a unit ({', '.join(self.units)}) such as {self.examples}, {bounds}"

    def read(self, value: object) -> int:
        """Read a string such as "0.5s"."""
        if not isinstance(value, str):
            raise ValueError(f"{show(value)} has no unit")
        match = _NUMBER_AND_UNIT.fullmatch(value.strip())
        if match is None:
            raise ValueError(f"{quote(value)} is not a number with a unit")
        if match[2] not in self.units:
            raise ValueError(f"{quote(value)} has the unknown unit {quote(match[2])}")
        amount = round(float(match[1]) * self.units[match[2]])
        if not self.low <= amount <= self.high:
            raise ValueError(f"{quote(value)} is out of range")
        return amount

    def from_text(self, text: str) -> object:
        """Text it is already."""
        return text

    def write(self, value: object) -> str:
        """Write it in the largest unit that needs no fraction."""
        amount = cast(int, value)
        if amount == 0:
            return quote(f"0{'s' if 's' in self.units else 'B'}")
        unit, size = [(unit, size) for unit, size in self.units.items() if amount % size == 0 or size == 1][-1]
        return quote(f"{amount // size}{unit}")


def duration(*, low: str = "1ms", high: str = "720h") -> _Measured:
    """A span of time, in nanoseconds, between `low` and `high`."""
    anything = _Measured(0, MAX_SPAN_NS, NANOSECONDS, '"250ms", "0.5s", "10m" or "6h"')
    return _Measured(anything.read(low), anything.read(high), NANOSECONDS, anything.examples)


def days(low: str, high: str) -> _Measured:
    """A long span of time, in nanoseconds, between `low` and `high`."""
    anything = _Measured(0, 36_500 * DAYS["d"], DAYS, '"12h" or "30d"')
    return _Measured(anything.read(low), anything.read(high), DAYS, anything.examples)


def size(low: str, high: str) -> _Measured:
    """A size, in bytes, between `low` and `high`."""
    anything = _Measured(0, 1 << 50, BYTES, '"64MiB" or "16KiB"')
    return _Measured(anything.read(low), anything.read(high), BYTES, anything.examples)


@dataclass(frozen=True)
class Checked:
    """A string that a function checks, and may bring into a normal form."""

    accepted: str
    check: Callable[[str], str]
    expands: bool = False

    def read(self, value: object) -> str:
        """Read a string."""
        return self.check(_string(value))

    def from_text(self, text: str) -> object:
        """Text it is already."""
        return text

    def write(self, value: object) -> str:
        """Write it quoted."""
        return quote(cast(str, value))


def choice(*words: str) -> Checked:
    """One of a few words."""

    def check(text: str) -> str:
        if text not in words:
            raise ValueError(f"{show(text)} is none of them")
        return text

    return Checked(", ".join(words), check)


def text(accepted: str, *, empty: bool) -> Checked:
    """Any string; the empty one only with `empty`."""

    def check(value: str) -> str:
        if not value and not empty:
            raise ValueError("it is empty")
        return value

    return Checked(accepted, check)


def address() -> Checked:
    """An address to listen on."""

    def check(value: str) -> str:
        if not value.startswith("unix:"):
            host_and_port(value)
            return value
        path = value.removeprefix("unix:").removeprefix("//")
        if not path.startswith("/"):
            raise ValueError(f"the path in {show(value)} is not absolute")
        if len(path.encode()) > MAX_SOCKET_PATH:
            raise ValueError(f"the path in {show(value)} has more than {MAX_SOCKET_PATH} bytes, the system's limit")
        return f"unix:{path}"

    accepted = (
        f"unix: and an absolute path of at most {MAX_SOCKET_PATH} bytes, or an IP address (or localhost) with a port, "
        'such as "127.0.0.1:7443" or "[::1]:7443"'
    )
    return Checked(accepted, check, expands=True)


def host_and_port(value: str) -> tuple[str, int]:
    """Take an address of TCP apart; the host is an IP address or localhost.

    Names other than localhost are not accepted: what they stand for may change, and with it who can connect.

    Raises:
        ValueError: it is none.
    """
    match = _HOST_AND_PORT.fullmatch(value)
    if match is None:
        raise ValueError(f"{show(value)} is neither a Unix socket nor an IP address with a port")
    host, port = match[1] or match[2], int(match[3])
    if host != "localhost":
        try:
            ip_address(host)
        except ValueError:
            raise ValueError(f"{show(host)} is no IP address") from None
    if not 1 <= port <= MAX_PORT:
        raise ValueError(f"{port} is no port")
    return host, port


def beyond_loopback(value: str) -> bool:
    """Whether an address that `address` accepts can be reached from other machines."""
    if value.startswith("unix:"):
        return False
    return not is_loopback(host_and_port(value)[0])


def is_loopback(host: str) -> bool:
    """Whether a host, `localhost` or an IP address, is reached from this machine alone.

    Raises:
        ValueError: it is neither.
    """
    return host == "localhost" or any(ip_address(host) in network for network in _LOOPBACK)


def side_address() -> Checked:
    """An address of TCP to serve HTTP on, or nothing. Port 0 takes any that is free."""

    def check(value: str) -> str:
        host, _, port = value.rpartition(":")
        if value.startswith("unix:"):
            raise ValueError(f"{show(value)} is no IP address with a port")
        if value:
            host_and_port(f"{host}:1" if port == "0" else value)
        return value

    accepted = 'an IP address (or localhost) with a port, such as "127.0.0.1:9464", or empty for none'
    return Checked(accepted, check, expands=True)


def directory() -> Checked:
    """A path of a directory. Whether it exists is asked when it is used."""

    def check(value: str) -> str:
        if not value:
            raise ValueError("it is empty")
        return value

    return Checked("the path of a directory, relative to where the daemon is started, or absolute", check, expands=True)


def file() -> Checked:
    """A path of a file, or nothing. Whether it exists is asked when it is used."""
    accepted = "the path of a file, relative to where the daemon is started, or absolute, or empty"
    return Checked(accepted, lambda value: value, expands=True)


def name() -> Checked:
    """A name of an identity or of a tenant."""

    def check(value: str) -> str:
        if not _NAME.fullmatch(value):
            raise ValueError(f"{show(value)} is no name")
        return value

    return Checked("at most 63 letters, digits, and . _ @ -, beginning with a letter or digit", check)


def checksum() -> Checked:
    """A SHA-256 in hexadecimal, or nothing."""

    def check(value: str) -> str:
        if value and not _SHA256.fullmatch(value):
            raise ValueError(f"{show(value)} is no SHA-256")
        return value

    return Checked("64 hexadecimal digits in lower case, or empty for no check", check)


def environment_name() -> Checked:
    """The name of a variable that an agent may be given."""

    def check(value: str) -> str:
        if not _ENVIRONMENT_NAME.fullmatch(value):
            raise ValueError(f"{show(value)} is no name of a variable")
        for beginning, reason in _RESERVED.items():
            if value.startswith(beginning):
                raise ValueError(f"{value} {reason}")
        return value

    return Checked(f"letters, digits and underscores, not beginning with a digit, {', '.join(_RESERVED)}", check)


def rung() -> Checked:
    """One rung of the shutdown ladder, with the time that it has."""
    time = duration()

    def check(value: str) -> str:
        name, colon, span = value.partition(":")
        if value == "kill":
            return value
        if name not in _RUNGS_WITH_TIME or not colon:
            raise ValueError(f"{show(value)} is no rung")
        time.read(span)
        return value

    return Checked("kill, or one of end, eof, term with its time, such as term:5s", check)


def rung_time(value: str) -> int:
    """Give how long a rung lasts, in nanoseconds; 0 for `kill`."""
    span = value.partition(":")[2]
    return duration().read(span) if span else 0


@dataclass(frozen=True)
class Items(Generic[T]):
    """A list."""

    item: Kind[T]
    low: int = 0
    high: int = 1000
    unique: bool = True

    @property
    def accepted(self) -> str:
        """The number of entries, and what each can be."""
        number = f"{self.low}" if self.low == self.high else f"{self.low} to {self.high}"
        return f"a list of {number} entries, each of them {self.item.accepted}"

    @property
    def expands(self) -> bool:
        """As the entries."""
        return self.item.expands

    def read(self, value: object) -> tuple[T, ...]:
        """Read a list; an entry that is wrong is named by its place, from 1."""
        if not isinstance(value, list | tuple):
            raise ValueError(f"{show(value)} is not a list")
        if not self.low <= len(value) <= self.high:
            raise ValueError(f"it has {len(value)} entries")
        entries: list[T] = []
        for place, entry in enumerate(value, 1):
            try:
                entries.append(self.item.read(entry))
            except ValueError as error:
                raise ValueError(f"entry {place}: {error}") from None
        if self.unique and len(set(entries)) < len(entries):
            raise ValueError("an entry is there twice")
        return tuple(entries)

    def from_text(self, text: str) -> object:
        """Read entries with commas between them."""
        return [self.item.from_text(part.strip()) for part in text.split(",")] if text.strip() else []

    def write(self, value: object) -> str:
        """Write it on one line."""
        return f"[{', '.join(self.item.write(entry) for entry in cast(tuple[object, ...], value))}]"


class Flag:
    """Yes or no."""

    expands = False
    accepted = "true or false"

    def read(self, value: object) -> bool:
        """Read a boolean."""
        if not isinstance(value, bool):
            raise ValueError(f"{show(value)} is neither true nor false")
        return value

    def from_text(self, text: str) -> object:
        """Read the two words; what is none stays text, for `read` to refuse."""
        return {"true": True, "false": False}.get(text.strip().lower(), text)

    def write(self, value: object) -> str:
        """Write the word."""
        return "true" if value else "false"


class Command(Items[str]):
    """A program and its arguments; in the environment and in flags with spaces between them."""

    def __init__(self) -> None:
        super().__init__(text("a non-empty string", empty=False), 1, 256, unique=False)

    def from_text(self, text: str) -> object:
        """Read words."""
        return text.split()


@dataclass(frozen=True)
class Variables:
    """A table of environment variables. Values are secrets: they are never written back."""

    name: Checked
    expands = False

    @property
    def accepted(self) -> str:
        """The form."""
        return f"a table of strings, each name {self.name.accepted}"

    def read(self, value: object) -> Mapping[str, str]:
        """Read a table. No message of an error holds a value."""
        if not isinstance(value, dict):
            raise ValueError("it is not a table")
        for name, content in value.items():
            self.name.read(name)
            if not isinstance(content, str) or "\x00" in content:
                raise ValueError(f"the value of {name} is not a string without NUL")
        return dict(value)

    def from_text(self, text: str) -> object:
        """Read NAME=VALUE pairs with commas between them; what is none stays text, for `read` to refuse."""
        return pairs(text)

    def write(self, value: object) -> str:
        """Write the names, each with a word in place of its value."""
        written = [name + ' = "(hidden)"' for name in cast(Mapping[str, str], value)]
        return f"{{ {', '.join(written)} }}" if written else "{}"


def label_key() -> Checked:
    """The key of a label."""

    def check(value: str) -> str:
        if not 1 <= len(value.encode()) <= MAX_LABEL_KEY:
            raise ValueError(f"{show(value)} has {len(value.encode())} bytes")
        return value

    return Checked(f"a key of 1 to {MAX_LABEL_KEY} bytes", check)


class Labels:
    """A table of labels."""

    expands = False
    accepted = f"a table of strings of at most {MAX_LABEL} bytes, each key 1 to {MAX_LABEL_KEY} bytes"

    def read(self, value: object) -> Mapping[str, str]:
        """Read a table."""
        if not isinstance(value, dict):
            raise ValueError(f"{show(value)} is not a table")
        for key, content in value.items():
            if not 1 <= len(key.encode()) <= MAX_LABEL_KEY:
                raise ValueError(f"the key {show(key)} has {len(key.encode())} bytes")
            if len(_string(content).encode()) > MAX_LABEL:
                raise ValueError(f"the value of {key} has more than {MAX_LABEL} bytes")
        return dict(value)

    def from_text(self, text: str) -> object:
        """Read KEY=VALUE pairs with commas between them; what is none stays text, for `read` to refuse."""
        return pairs(text)

    def write(self, value: object) -> str:
        """Write it on one line."""
        written = [f"{quote(key)} = {quote(content)}" for key, content in cast(Mapping[str, str], value).items()]
        return f"{{ {', '.join(written)} }}" if written else "{}"


def pairs(text: str) -> object:
    """Read NAME=VALUE pairs with commas between them; what is none stays text."""
    found = [part.strip().partition("=") for part in text.split(",")] if text.strip() else []
    return {name: value for name, _, value in found} if all(equals for _, equals, _ in found) else text
