"""The worker: builds everything, owns the top task group and the signals, and knows all concrete classes.

It is started by the parent process (`steprail_daemon.parent`) as `python -m steprail_daemon.daemon`. Exit codes: 0
after a drain, 78 if the configuration or the journal's content cannot be used (starting again would not help), 1
otherwise: the parent then starts it again, with pauses.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import random
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import anyio
import anyio.abc

from steprail_daemon import upkeep
from steprail_daemon.access import Entrance, open_entrance
from steprail_daemon.config.load import DEFAULT, ConfigError, LoadedConfig, load_config
from steprail_daemon.config.schema import Agent as AgentConfig
from steprail_daemon.config.schema import PermissionPolicy
from steprail_daemon.core.backoff import BackoffSettings
from steprail_daemon.core.errors import Unavailable
from steprail_daemon.core.model import MILLISECOND, SECOND, PermissionAction, PermissionMode, PermissionRule
from steprail_daemon.core.shutdown import parse_ladder
from steprail_daemon.core.stops.expressions import RuleEngine
from steprail_daemon.drivers.registry import DRIVERS
from steprail_daemon.engine.agents import Agents
from steprail_daemon.engine.arrivals import Arrivals
from steprail_daemon.engine.drain import Drain
from steprail_daemon.engine.engine import Engine
from steprail_daemon.engine.facade import Role
from steprail_daemon.engine.rate_limits import RateLimits
from steprail_daemon.engine.recovery import recover
from steprail_daemon.engine.settings import AgentSettings, EngineSettings
from steprail_daemon.engine.system import SystemClock, SystemIds
from steprail_daemon.engine.world import World
from steprail_daemon.expressions.workers import ExpressionLimits, ExpressionWorkers
from steprail_daemon.journal import record
from steprail_daemon.journal.checkpoint import Checkpoint
from steprail_daemon.journal.retention import Keep
from steprail_daemon.journal.sqlite import SqliteStore
from steprail_daemon.journal.store import JournalError, JournalUnusable, Store
from steprail_daemon.journal.verify import Report, verify
from steprail_daemon.observability.logging import configure_logging
from steprail_daemon.observability.watch import Observatory
from steprail_daemon.parent.wire import CONTROL_OPTION
from steprail_daemon.reload import Reload
from steprail_daemon.service.kinds import KIND_NAMES
from steprail_daemon.service.server import ApiServer
from steprail_daemon.service.translate import KINDS, WireEncoders
from steprail_daemon.supervisor import ParentLink, build_environment

__all__ = ["JournalError", "main", "verify_journal"]

EX_CONFIG = 78
#: What an agent's end may take beyond the abort's time-out and the ladder: the kill of its tree, its last words.
END_MARGIN_NS = 15 * SECOND

log = logging.getLogger("steprail")


def main(arguments: list[str] | None = None) -> int:
    """Run the worker until it is told to end; gives its exit code."""
    options = _read_arguments(arguments)
    read = partial(load_config, options.set or {}, os.environ, path=options.config, state_directory=options.state_dir)
    try:
        loaded = read()
    except ConfigError as error:
        print_problem(str(error))
        return EX_CONFIG
    configure_logging(loaded.config.logging.level, loaded.config.logging.format)
    try:
        settings = engine_settings(loaded, os.environ)
        entrance = open_entrance(loaded.config)
        reload = Reload(loaded, read, entrance.parts())
    except ValueError as error:
        print_problem(str(error))
        return EX_CONFIG
    observatory = build_observatory(loaded)
    try:
        store = open_store(loaded, observatory.commits.append)
    except (JournalError, OSError) as error:
        print_problem(f"the journal in {loaded.state_directory} cannot be used: {error}")
        return _code_of(error)
    try:
        return anyio.run(
            partial(
                serve,
                loaded,
                store,
                settings,
                options.control_fd,
                entrance=entrance,
                reload=reload,
                observatory=observatory,
            ),
            backend="asyncio",
            backend_options={"use_uvloop": True},
        )
    finally:
        observatory.close()
        _close_store(store)


def _code_of(error: Exception) -> int:
    """Give the exit code: 78 where the content is at fault, 1 where the machine is and trying again may help."""
    return EX_CONFIG if isinstance(error, JournalUnusable | ValueError) else 1


def _close_store(store: Store) -> None:
    try:
        store.close()
    except JournalError as error:
        # What was committed is safe; the next start takes the rest of the write-ahead log in.
        log.warning("the journal could not be closed cleanly: %s", error.message)


def print_problem(message: str) -> None:
    """Say on stderr why the worker does not start."""
    sys.stderr.write(f"steprail: {message}\n")


def _read_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="steprail-worker", description="Started by `steprail serve`.")
    parser.add_argument("--config", default=None, help="configuration file")
    parser.add_argument("--state-dir", required=True, help="directory of journal and homes")
    parser.add_argument("--set", action=_SetFlag, metavar="KEY=VALUE", help="overrides a key of the configuration")
    parser.add_argument(CONTROL_OPTION, type=int, required=True, help="socket to the parent process")
    return parser.parse_args(arguments)


class _SetFlag(argparse.Action):
    """Collects `--set KEY=VALUE` into a mapping."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        key, separator, value = str(values).partition("=")
        if not separator:
            parser.error(f"{option_string} takes KEY=VALUE, not {values!r}")
        flags = getattr(namespace, self.dest) or {}
        flags[key] = value
        setattr(namespace, self.dest, flags)


def open_store(loaded: LoadedConfig, note_commit: Callable[[int], object]) -> SqliteStore:
    """Open the journal of the state directory, making both where they are not there; see `SqliteStore`.

    Raises:
        JournalError: the file cannot be used.
        OSError: the directory cannot be made.
    """
    loaded.state_directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode: Literal["full", "normal"] = "full" if loaded.config.journal.synchronous == "full" else "normal"
    return SqliteStore(loaded.state_directory / "journal.db", synchronous=mode, note_commit=note_commit)


def build_observatory(loaded: LoadedConfig) -> Observatory:
    """Put together what observes the daemon."""
    config = loaded.config
    return Observatory(
        version=version("steprail-daemon"),
        agents=config.agents,
        tools=config.metrics.tools,
        label_keys=config.metrics.label_keys,
        content=config.logging.content,
        kinds=KIND_NAMES,
        numbers=KINDS,
    )


def verify_journal(path: Path) -> Report:
    """Check a journal file without a daemon; see `journal.verify`."""
    return verify(path)


class _Life:
    """What can end the worker: a signal, the loss of the parent, a bug. `code` is the exit code then."""

    def __init__(self) -> None:
        self.ends = asyncio.Event()
        self.code = 0

    def signalled(self) -> None:
        """A signal asks for the orderly end."""
        self.ends.set()

    def fail(self) -> None:
        """Nothing orderly is possible any more."""
        self.code = 1
        self.ends.set()

    def lost_parent(self) -> None:
        """Our agents die with the parent, and nobody can start new ones."""
        log.error("the parent process is gone")
        self.fail()

    def crash(self, error: Exception) -> None:
        """A bug: say so, and let the next life close what this one can no longer answer for."""
        log.critical("a bug ends this worker", exc_info=error)
        self.fail()


async def serve(
    loaded: LoadedConfig,
    store: Store,
    settings: EngineSettings,
    control_fd: int,
    *,
    entrance: Entrance,
    reload: Callable[[], None],
    observatory: Observatory,
) -> int:
    """Serve until a signal, then drain; gives the exit code. `reload` is what SIGHUP asks for."""
    life = _Life()
    async with anyio.create_task_group() as tasks:
        loop = asyncio.get_running_loop()
        link = ParentLink(control_fd, loop, on_lost=life.lost_parent, observe=observatory.observe)
        cel = loaded.config.limits.cel
        rules = ExpressionWorkers(
            link, ExpressionLimits(cpu_ms=max(1, cel.time_ns // MILLISECOND), memory_bytes=cel.memory)
        )
        engine, world = build_engine(settings, store, link, tasks, life.crash, observatory=observatory, rules=rules)
        drain = engine.drainer = Drain(
            world, engine, window_ns=loaded.config.drain.window_ns, stop_budget_ns=loaded.config.drain.stop_budget_ns
        )
        server = ApiServer(
            engine,
            loaded.config.server.listen,
            access=entrance.access,
            tls=entrance.tls,
            observe=observatory.observe,
        )
        try:
            observatory.listen(loaded.config.server.http, required=loaded.sources["server.http"] != DEFAULT)
            for runner in recover(world):
                engine.add(runner)
            await server.start()
            observatory.begin(
                (runner.view, {place.run_no: place.view for place in runner.places.values()})
                for runner in engine.runners()
            )
        except (JournalError, ValueError, Unavailable) as error:
            print_problem(f"the journal in {loaded.state_directory} cannot be used: {error}")
            life.code = _code_of(error)
        except OSError as error:
            print_problem(str(error))
            life.code = EX_CONFIG
        else:
            _settle_memory()
            async with _signals(life.signalled, reload):
                tasks.start_soon(observatory.run, name="pulse")
                if isinstance(store, SqliteStore):
                    _keep_in_order(store, loaded, engine, tasks, observatory)
                tasks.start_soon(server.watch_stalls, name="stalled readers")
                log.info("ready, listening on %s", ", ".join(loaded.config.server.listen))
                await _first_of(life.ends, drain.begun)
                life.ends.clear()
                observatory.health.draining = True
                if not life.code:
                    await _drain(settings, drain, server, life.ends)
                await rules.close()
        tasks.cancel_scope.cancel()
    return life.code


async def _first_of(*events: asyncio.Event) -> None:
    """Wait until one of several things happened."""
    async with anyio.create_task_group() as tasks:

        async def wait(event: asyncio.Event) -> None:
            await event.wait()
            tasks.cancel_scope.cancel()

        for event in events:
            tasks.start_soon(wait, event)


async def _drain(settings: EngineSettings, drain: Drain, server: ApiServer, hurry: asyncio.Event) -> None:
    log.info("draining")
    server.refuse_new()
    drain.begin()
    longest_end_ns = settings.abort_timeout_ns + settings.ladder.total + END_MARGIN_NS
    await drain.run(longest_end_ns=longest_end_ns, hurry=hurry)
    await server.stop()
    log.info("drained")


def build_engine(
    settings: EngineSettings,
    store: Store,
    link: ParentLink,
    tasks: anyio.abc.TaskGroup,
    crash: Callable[[Exception], None],
    *,
    observatory: Observatory,
    rules: RuleEngine,
) -> tuple[Engine, World]:
    """Put the engine together from what is concrete."""

    def start_task(function: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        tasks.start_soon(function, name=name)

    clock = SystemClock()
    agents = Agents(settings, DRIVERS, link, start_task)
    world = World(
        settings=settings,
        store=store,
        records=record,
        encoders=WireEncoders(),
        clock=clock,
        ids=SystemIds(),
        launcher=link,
        drivers=DRIVERS,
        loop=asyncio.get_running_loop(),
        start_task=start_task,
        require_agent=agents.require,
        version_of=agents.version_of,
        rules=rules,
        rate_limits=RateLimits(settings, clock, random.random, observatory.observe),
        arrivals=Arrivals(),
        crash=crash,
        listener=observatory.sink,
        observe=observatory.observe,
    )
    start_task(agents.probe_all, "probe agents")
    return Engine(world, agents), world


def engine_settings(loaded: LoadedConfig, environ: Mapping[str, str]) -> EngineSettings:
    """Translate the configuration into what the engine wants."""
    config = loaded.config
    return EngineSettings(
        agents=tuple(_agent(name, agent, loaded, environ) for name, agent in config.agents.items()),
        workspace_roots=tuple(os.path.realpath(root) for root in config.server.workspace_roots),
        max_sessions=config.server.max_sessions,
        max_processes=config.server.max_processes,
        max_steps=config.limits.max_steps,
        hard_timeout_ns=config.limits.hard_timeout_ns,
        decision_timeout_ns=config.limits.decision_timeout_ns,
        stop_timeout_ns=config.limits.stop_timeout_ns,
        abort_timeout_ns=config.limits.abort_timeout_ns,
        start_timeout_ns=config.processes.start_timeout_ns,
        idle_timeout_ns=config.processes.idle_timeout_ns,
        line_bytes=config.limits.line_bytes,
        prompt_bytes=config.limits.prompt_bytes,
        permission_timeout_ns=config.limits.permission_timeout_ns,
        queue_timeout_ns=config.limits.queue_timeout_ns,
        queue_length=config.limits.queue_length,
        disconnect_grace_ns=config.limits.disconnect_grace_ns,
        silence_ns=config.limits.silence_ns,
        permission_rules=tuple(_permission_rule(entry) for entry in config.policy.permissions),
        backoff=BackoffSettings(config.rate_limits.fallback_delay_ns, config.rate_limits.max_delay_ns),
        queue_on_limit=config.rate_limits.on_limit == "queue",
        permission_modes={
            Role.OPERATOR: _modes(config.policy.operator_modes),
            Role.ADMIN: frozenset(PermissionMode),
        },
        caller_environment=config.policy.caller_environment,
        ladder=parse_ladder(config.processes.ladder),
    )


def _modes(names: tuple[str, ...]) -> frozenset[PermissionMode]:
    return frozenset([PermissionMode[name.upper()] for name in names])


def _permission_rule(entry: PermissionPolicy) -> PermissionRule:
    return PermissionRule(
        action=PermissionAction[entry.action.upper()],
        tool=entry.tool,
        command_prefix=entry.command_prefix,
        path=entry.path,
        cel=entry.cel,
        reason=entry.reason,
    )


def _agent(name: str, agent: AgentConfig, loaded: LoadedConfig, environ: Mapping[str, str]) -> AgentSettings:
    home = str(loaded.state_directory / "homes" / name) if agent.home == "isolated" else ""
    return AgentSettings(
        name=name,
        driver=agent.driver,
        command=agent.command,
        environment=build_environment(
            agent.environment.pass_, agent.environment.set_, environ, f"agents.{name}.environment"
        ),
        isolated_home=home,
        model=agent.model,
        permission_mode=PermissionMode[agent.permission_mode.upper()],
        checksum=agent.checksum,
    )


def _keep_in_order(
    store: SqliteStore, loaded: LoadedConfig, engine: Engine, tasks: anyio.abc.TaskGroup, observatory: Observatory
) -> None:
    retain = loaded.config.journal.retain

    def checkpointed(done: Checkpoint) -> None:
        observatory.observe("journal_bytes", done.file_bytes + done.wal_bytes, {})

    tasks.start_soon(upkeep.checkpoints, store, lambda: engine.busy, checkpointed, name="checkpoints")
    tasks.start_soon(upkeep.retention, store, Keep(retain.age_ns, retain.bytes), engine.now, name="retention")


@asynccontextmanager
async def _signals(end: Callable[[], None], reload: Callable[[], None]) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    loop.add_signal_handler(signal.SIGHUP, reload)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.remove_signal_handler(number)


def _settle_memory() -> None:
    # What exists now lives as long as we do: the collector must not walk it again and again on the hot path.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


if __name__ == "__main__":
    sys.exit(main())
