"""`steprail serve`: checks what can be checked, then becomes the parent process."""

from __future__ import annotations

import os
import secrets
import signal
import sys
from pathlib import Path

import click

from steprail_daemon.cli.configuration import load
from steprail_daemon.cli.options import config_options
from steprail_daemon.cli.owner import die_with
from steprail_daemon.cli.problems import ConfigProblem
from steprail_daemon.cli.state_lock import lock_holder
from steprail_daemon.config.load import LoadedConfig

_SECOND_NS = 1_000_000_000


@click.command()
@config_options
@click.option("--listen", metavar="ADDRESS", multiple=True, help="Address to serve on, in place of server.listen.")
@click.option("--owner", type=int, hidden=True, help="Drain when the process with this id, our parent, is gone.")
def command(
    *,
    config: str | None,
    state_dir: str | None,
    settings: tuple[tuple[str, str], ...],
    listen: tuple[str, ...],
    owner: int | None,
) -> None:
    """Run the daemon in the foreground until SIGTERM or Ctrl-C.

    It then takes no new runs, gives live ones `drain.window` to end, aborts what is left, and exits with 0. A
    configuration that cannot be used exits with 78.
    """
    if listen:
        settings = (*settings, ("server.listen", ",".join(listen)))
    loaded = load(config, state_dir, settings)
    if loaded.sources["logging.format"] == "default" and sys.stderr.isatty():
        settings = (*settings, ("logging.format", "console"))
        loaded = load(config, state_dir, settings)
    instance = prepare_state(loaded.state_directory)
    if owner is not None:
        die_with(owner)
    argv = parent_argv(loaded, settings, instance)
    sys.stdout.flush()
    sys.stderr.flush()
    # Until the parent process takes it, Ctrl-C would be a traceback of the interpreter that comes up.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    os.execv(argv[0], argv)  # noqa: S606 -- no shell is wanted


def prepare_state(directory: Path) -> str:
    """Make the state directory, see that no daemon holds it, and give the name of its life.

    Raises:
        ConfigProblem: the directory cannot be used, or a daemon holds it.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        holder = lock_holder(directory / "lock")
        instance = _instance(directory / "instance")
    except OSError as error:
        raise ConfigProblem(f"the state directory {directory} cannot be used: {error}") from None
    if holder:
        other = f"another daemon, process {holder}, uses the state directory {directory}"
        raise ConfigProblem(f"{other}; stop it, or name another directory with --state-dir")
    return instance


def _instance(path: Path) -> str:
    """Give the name that marks this directory's agents, made at the first start.

    Two daemons that start at once must not overwrite each other's: a link is made by one of them only.
    """
    if not path.exists():
        candidate = path.with_name(f"instance.{os.getpid()}")
        candidate.write_text(f"{secrets.token_hex(8)}\n")
        try:
            path.hardlink_to(candidate)
        except FileExistsError:
            pass
        finally:
            candidate.unlink()
    return path.read_text().strip()


def parent_argv(loaded: LoadedConfig, settings: tuple[tuple[str, str], ...], instance: str) -> list[str]:
    """Give the command line of the parent process, with that of the worker in it.

    `-P` keeps Python from importing what lies in the directory where the daemon is started.
    """
    config = loaded.config
    first, longest = config.processes.worker_backoff_ns
    python = [sys.executable, "-P", "-m"]
    worker = [*python, "steprail_daemon.daemon", "--state-dir", str(loaded.state_directory)]
    if loaded.path is not None:
        worker += ["--config", str(loaded.path)]
    for key, value in settings:
        worker += ["--set", f"{key}={value}"]
    return [
        *python,
        "steprail_daemon.parent",
        f"--instance={instance}",
        f"--lock={loaded.state_directory / 'lock'}",
        f"--grace={config.drain.grace_ns / _SECOND_NS}",
        f"--backoff={first / _SECOND_NS}:{longest / _SECOND_NS}",
        f"--log-format={config.logging.format}",
        "--",
        *worker,
    ]
