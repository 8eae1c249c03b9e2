"""Brings a file, the environment and flags together into a checked configuration.

A later layer wins, key by key: defaults, file, environment (`STEPRAIL_<SECTION>__<KEY>`), flags. Whatever is wrong is
collected and reported together, each with the key, where the value came from, what is wrong and what is accepted.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from steprail_daemon.config import access, places, schema
from steprail_daemon.config.lines import key_lines, line_of
from steprail_daemon.config.schema import Child, Config, Key, children
from steprail_daemon.config.values import expand

KeyPath = tuple[str, ...]

PREFIX = "STEPRAIL_"
DEFAULT = "default"
_AGENT_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_AGENT_NAME_ACCEPTED = "at most 63 lower-case letters, digits, _ and -, beginning with a letter or digit"


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong. `where` is a file with its line, a variable or a flag; empty if it is none of them."""

    key: str
    where: str
    message: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.where, self.key, self.message) if part)


class ConfigError(Exception):
    """The configuration cannot be used. `problems` has everything that is wrong with it."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


@dataclass(frozen=True)
class Setting:
    """The value of one key as TOML, and where it came from."""

    key: str
    value: str
    source: str


@dataclass(frozen=True)
class LoadedConfig:
    """A checked configuration. `sources` tells for each dotted key where its value came from; `path` is the file."""

    config: Config
    sources: Mapping[str, str]
    path: Path | None
    state_directory: Path

    def describe(self) -> list[Setting]:
        """Give each value that is in force and where it came from, in the order of the reference."""
        settings: list[Setting] = []
        for path, key, value in _leaves(Config, self.config, ()):
            dotted = ".".join(path)
            settings.append(Setting(dotted, key.kind.write(value), self.sources[dotted]))
        return settings


@dataclass(frozen=True)
class _Raw:
    """A value as it was found, and where."""

    value: object
    source: str


@dataclass
class _Findings:
    """What the layers held."""

    raw: dict[KeyPath, _Raw] = field(default_factory=dict)
    agents: dict[str, str] = field(default_factory=dict)
    #: How many entries each array of tables has.
    lengths: dict[KeyPath, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def place(self, path: KeyPath) -> str:
        """Give where an entry of an array of tables stands, for a key that it lacks."""
        return next((raw.source for known, raw in self.raw.items() if known[: len(path) - 1] == path[:-1]), "")

    def problem(self, path: KeyPath, where: str, message: str) -> None:
        self.problems.append(Problem(".".join(path), where, message))


def load_config(
    flags: Mapping[str, str],
    environ: Mapping[str, str],
    *,
    path: str | Path | None = None,
    state_directory: str | Path | None = None,
    uid: int | None = None,
    serves: bool = True,
) -> LoadedConfig:
    """Load the configuration.

    Args:
        flags: Values by dotted key, such as `limits.max_steps`, as bare text.
        environ: The environment.
        path: The file, from `--config`; None looks for one.
        state_directory: From `--state-dir`; None takes the default.
        uid: The user whose defaults apply; None is the process's effective one.
        serves: Whether a daemon is to be started here; who only looks for one may do so in any directory.

    Raises:
        ConfigError: with everything that is wrong.
    """
    uid = os.geteuid() if uid is None else uid
    file = find_file(path, environ)
    findings = _Findings()
    if file is not None:
        _read_file(file, findings)
    if not findings.agents:
        findings.agents = dict.fromkeys(Config().agents, DEFAULT)
    _read_environment(environ, findings)
    _read_flags(flags, findings)
    loaded = _Builder(findings, environ, _varying_defaults(findings, environ, uid)).build()
    config = _with_absolute_roots(loaded.config, loaded.sources, findings, serves=serves)
    for key, message in [] if findings.problems else [*schema.conflicts(config), *access.conflicts(config)]:
        findings.problems.append(Problem(key, _unless_default(loaded.sources[key]), message))
    if findings.problems:
        raise ConfigError(findings.problems)
    state = Path(state_directory).absolute() if state_directory else places.state_directory(environ, uid)
    return LoadedConfig(config, loaded.sources, file, state)


def changed_keys(before: LoadedConfig, after: LoadedConfig) -> list[str]:
    """Give the dotted keys whose values differ, or that only one of two configurations has, by name."""
    old, new = (
        {".".join(path): value for path, _, value in _leaves(Config, one.config, ())} for one in (before, after)
    )
    return sorted(key for key in old.keys() | new.keys() if key not in old or key not in new or old[key] != new[key])


def find_file(path: str | Path | None, environ: Mapping[str, str]) -> Path | None:
    """Give the configuration file: the named one, $STEPRAIL_CONFIG, or the first that exists of the usual ones.

    Raises:
        ConfigError: a named file does not exist.
    """
    for named, where in ((path, "flag --config"), (environ.get("STEPRAIL_CONFIG"), "environment STEPRAIL_CONFIG")):
        if named:
            if not Path(named).is_file():
                raise ConfigError([Problem("", where, f"there is no file {named}")])
            return Path(named).absolute()
    return next((found.absolute() for found in places.config_candidates(environ) if found.is_file()), None)


def environment_name(path: KeyPath) -> str:
    """Give the variable that sets a key."""
    return PREFIX + "__".join(re.sub(r"\W|-", "_", part).upper() for part in path)


def all_keys(agents: Iterable[str]) -> dict[KeyPath, Key]:
    """Give every key that exists with these agents, in order."""
    return dict(_keys(Config, (), tuple(agents)))


def _keys(section: type[Any], path: KeyPath, agents: tuple[str, ...]) -> Iterator[tuple[KeyPath, Key]]:
    for name, child in children(section).items():
        if child.key:
            yield (*path, name), child.key
        elif child.section:
            yield from _keys(child.section, (*path, name), agents)
        elif child.named:
            for agent in agents:
                yield from _keys(child.named, (*path, name, agent), agents)


def _leaves(section: type[Any], value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Key, object]]:
    for name, child in children(section).items():
        inner = getattr(value, child.attribute)
        if child.key:
            yield (*path, name), child.key, inner
        elif child.section:
            yield from _leaves(child.section, inner, (*path, name))
        elif child.named:
            for entry, content in inner.items():
                yield from _leaves(child.named, content, (*path, name, entry))
        elif child.listed:
            for number, content in enumerate(inner, 1):
                yield from _leaves(child.listed, content, (*path, name, str(number)))


def _unknown(name: str, accepted: Iterable[str]) -> str:
    names = list(accepted)
    nearest = get_close_matches(name, names, n=1, cutoff=0.7)
    return f"unknown key{f', did you mean {nearest[0]}?' if nearest else ''}; accepted: {', '.join(names)}"


def _unless_default(source: str) -> str:
    return "" if source == DEFAULT else source


def _read_file(file: Path, findings: _Findings) -> None:
    try:
        text = file.read_text(encoding="utf-8")
        table = tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([Problem("", str(file), f"cannot be read: {error}")]) from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([Problem("", str(file), f"is not TOML: {error}")]) from None
    _FileReader(str(file), key_lines(text), findings).section(Config, table, ())


@dataclass(frozen=True)
class _FileReader:
    """Takes a parsed file apart along the schema."""

    name: str
    lines: Mapping[KeyPath, int]
    findings: _Findings

    def where(self, path: KeyPath) -> str:
        line = line_of(path, dict(self.lines))
        return f"{self.name}:{line}" if line else self.name

    def problem(self, path: KeyPath, message: str) -> None:
        self.findings.problem(path, self.where(path), message)

    def section(self, section: type[Any], table: object, path: KeyPath) -> None:
        if not isinstance(table, dict):
            self.problem(path, f"it is not a table; accepted: a table of {', '.join(children(section))}")
            return
        known = children(section)
        for name, value in table.items():
            if name in known:
                self._child(known[name], value, (*path, name))
            else:
                self.problem((*path, name), _unknown(name, known))

    def _child(self, child: Child, value: object, path: KeyPath) -> None:
        if child.key:
            self.findings.raw[path] = _Raw(value, self.where(path))
        elif child.section:
            self.section(child.section, value, path)
        elif child.listed:
            self._entries(child.listed, value, path)
        elif child.named and isinstance(value, dict):
            for name, content in value.items():
                self._agent(child.named, name, content, (*path, name))
        else:
            self.problem(path, "it is not a table; accepted: a table for each agent")

    def _entries(self, section: type[Any], value: object, path: KeyPath) -> None:
        if not isinstance(value, list):
            self.problem(path, f"it is not an array of tables; accepted: [[{'.'.join(path)}]] before each entry")
            return
        self.findings.lengths[path] = len(value)
        for number, entry in enumerate(value, 1):
            self.section(section, entry, (*path, str(number)))

    def _agent(self, section: type[Any], name: str, content: object, path: KeyPath) -> None:
        twin = next((known for known in self.findings.agents if known.replace("-", "_") == name.replace("-", "_")), "")
        if not _AGENT_NAME.fullmatch(name):
            self.problem(path, f"it is no name of an agent; accepted: {_AGENT_NAME_ACCEPTED}")
        elif twin:
            self.problem(path, f"it differs from {twin} in _ and - only, which variables cannot tell apart")
        else:
            self.findings.agents[name] = self.where(path)
            self.section(section, content, path)


def _read_environment(environ: Mapping[str, str], findings: _Findings) -> None:
    keys = {environment_name(path): (path, key) for path, key in all_keys(findings.agents).items() if len(path) > 1}
    for name in sorted(environ):
        if not name.startswith(PREFIX) or "__" not in name:
            continue
        if name in keys:
            path, key = keys[name]
            findings.raw[path] = _Raw(key.kind.from_text(environ[name]), f"environment {name}")
        else:
            nearest = get_close_matches(name, keys, n=1)
            hint = f", did you mean {nearest[0]}?" if nearest else ""
            message = f"no key has this variable{hint}; accepted: {PREFIX}<SECTION>__<KEY> for a key of the reference"
            findings.problem((), f"environment {name}", message)


def _read_flags(flags: Mapping[str, str], findings: _Findings) -> None:
    keys = {".".join(path): (path, key) for path, key in all_keys(findings.agents).items()}
    for name, text in flags.items():
        if name in keys:
            path, key = keys[name]
            findings.raw[path] = _Raw(key.kind.from_text(text), "flag")
        else:
            section, _, last = name.rpartition(".")
            siblings = [known.rpartition(".")[2] for known in keys if section and known.rpartition(".")[0] == section]
            findings.problem((name,), "flag", _unknown(last, siblings) if siblings else _unknown(name, keys))


def _varying_defaults(findings: _Findings, environ: Mapping[str, str], uid: int) -> dict[KeyPath, object]:
    """Give the defaults that follow from the user or from other keys."""
    defaults: dict[KeyPath, object] = {("server", "listen"): list(places.default_listen(environ, uid))}
    for name in findings.agents:
        driver = findings.raw.get(("agents", name, "driver"))
        kind = str(driver.value) if driver else name
        defaults["agents", name, "driver"] = name
        defaults["agents", name, "command"] = list(schema.default_command(kind))
        defaults["agents", name, "environment", "pass"] = list(schema.default_pass(kind))
    return defaults


@dataclass
class _Built:
    config: Config
    sources: dict[str, str]


@dataclass
class _Builder:
    """Makes the configuration of what was found; a value that is refused becomes a problem and leaves the default."""

    findings: _Findings
    environ: Mapping[str, str]
    defaults: Mapping[KeyPath, object]
    sources: dict[str, str] = field(default_factory=dict)

    def build(self) -> _Built:
        return _Built(self._section(Config, ()), self.sources)

    def _section(self, section: type[Any], path: KeyPath) -> Any:
        content: dict[str, object] = {}
        for name, child in children(section).items():
            inner = (*path, name)
            if child.key:
                content[child.attribute] = self._value(child.key, inner)
            elif child.section:
                content[child.attribute] = self._section(child.section, inner)
            elif child.named:
                agents = self.findings.agents
                content[child.attribute] = {agent: self._section(child.named, (*inner, agent)) for agent in agents}
            elif child.listed:
                numbers = range(1, self.findings.lengths.get(inner, 0) + 1)
                content[child.attribute] = tuple(self._section(child.listed, (*inner, str(n))) for n in numbers)
        return section(**content)

    def _value(self, key: Key, path: KeyPath) -> object:
        found = self.findings.raw.get(path) or _Raw(self.defaults.get(path, key.default), DEFAULT)
        self.sources[".".join(path)] = found.source
        if key.required and path not in self.findings.raw:
            self.findings.problem(path, self.findings.place(path), f"it is missing; accepted: {key.kind.accepted}")
        try:
            return key.kind.read(self._expanded(found.value) if key.kind.expands else found.value)
        except ValueError as error:
            self.findings.problem(path, _unless_default(found.source), f"{error}; accepted: {key.kind.accepted}")
            return key.kind.read(key.default)

    def _expanded(self, value: object) -> object:
        if isinstance(value, str):
            return expand(value, self.environ)
        return [self._expanded(entry) for entry in value] if isinstance(value, list) else value


def _with_absolute_roots(config: Config, sources: Mapping[str, str], findings: _Findings, *, serves: bool) -> Config:
    """Resolve `workspace_roots` against the working directory.

    A default that comes to `/`, as under a supervisor that starts its services there, would open the whole machine: it
    has to be written down to be meant.
    """
    path = ("server", "workspace_roots")
    source = sources[".".join(path)]
    roots = [Path(root).expanduser().resolve() for root in config.server.workspace_roots]
    for written, root in zip(config.server.workspace_roots, roots, strict=True):
        if not root.is_dir():
            findings.problem(path, _unless_default(source), f"{written} is no directory; accepted: directories")
        elif root == Path("/") and source == DEFAULT and serves:
            message = (
                "the daemon is started in /, which would allow every directory; start it in another one, or name "
                "directories, as with --set server.workspace_roots=/srv/agents"
            )
            findings.problem(path, "", message)
    return replace(config, server=replace(config.server, workspace_roots=tuple(map(str, roots))))
