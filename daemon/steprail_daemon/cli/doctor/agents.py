"""Each agent: its program, version and checksum, its login, and whether it is really held at a step."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from steprail_daemon.cli.doctor.findings import Case, Check, Finding, Tell, not_tried, note, ok, problem, warning
from steprail_daemon.cli.doctor.logins import LOGINS
from steprail_daemon.cli.doctor.looks import found_in_time
from steprail_daemon.cli.doctor.trials import TRIALS, Observed, Trial, rehearse, what_failed
from steprail_daemon.cli.live import state_of
from steprail_daemon.cli.problems import Problem
from steprail_daemon.config.load import DEFAULT
from steprail_daemon.config.schema import DRIVERS, SCRIPTED

if TYPE_CHECKING:
    from steprail_daemon.examine import AgentFound

_MIB: Final = 1 << 20

AgentCheck = Callable[[Case, "AgentFound", Tell], Awaitable[None]]


async def agents(case: Case, tell: Tell) -> None:
    """Each of them by every check of `AGENT_CHECKS`, and whether there is one to work with."""
    # Here and not above: it brings the whole daemon with it, and where that cannot be imported it is a finding.
    from steprail_daemon.examine import find_agents  # noqa: PLC0415

    try:
        found = await find_agents(case.loaded, case.environ, case.agents)
    except ValueError as error:
        tell(not_tried("agents", f"what they would be given cannot be told: {error}", "correct what it names"))
        return
    for agent in found:
        for check in AGENT_CHECKS if not agent.problem else (program, digest):
            await check(case, agent, tell)
    if not case.named:
        _some(found, tell)


def _some(found: list[AgentFound], tell: Tell) -> None:
    usable = [agent for agent in found if not agent.problem]
    advice = "install one and see that its program is on the PATH, or name it in agents.<name>.command"
    if not usable:
        tell(problem("agents", "none of them can be used", advice))
    elif all(agent.driver == SCRIPTED for agent in usable):
        text = "none can be used but the built-in one, which has no model and never works for you"
        tell(warning("agents", text, advice))


async def program(case: Case, agent: AgentFound, tell: Tell) -> None:
    """The program and its version, by the judgement of its driver."""
    about = f"agent {agent.name}"
    if _is_another(case, agent):
        return  # `digest` tells it; such a program is not even asked for its version
    if agent.silent:
        tell(problem(about, agent.problem, f"see what it is, or name another program in agents.{agent.name}.command"))
    elif agent.interpreter:
        text = f"{agent.path} is a script for {agent.interpreter}, which is not on the PATH"
        tell(problem(about, text, f"install {agent.interpreter}, or put it on the PATH of the daemon"))
    elif not agent.problem:
        tell(ok(about, f"{agent.path}, version {agent.version}; the driver {agent.driver} accepts {agent.accepted}"))
    elif not agent.path and not _is_meant(case, agent.name):
        advice = "install it if you want to use it; agents are named in [agents.<name>] of the configuration"
        tell(note(about, f"it is not installed: there is no program {agent.command[0]!r} on the PATH", advice))
    elif not agent.path:
        advice = f"install it and see that it is on the PATH, or name its path in agents.{agent.name}.command"
        tell(problem(about, agent.problem, advice))
    else:
        advice = f"install a version that is accepted, or name another program in agents.{agent.name}.command"
        text = agent.problem if agent.path in agent.problem else f"{agent.path}: {agent.problem}"
        tell(problem(about, text, advice))


def _is_another(case: Case, agent: AgentFound) -> bool:
    """Whether it is not the program whose checksum is configured."""
    wanted = case.loaded.config.agents[agent.name].checksum
    return bool(wanted and agent.digest and agent.digest != wanted)


def _is_meant(case: Case, name: str) -> bool:
    """Whether somebody named the agent, in the configuration or now; otherwise it is there by default only."""
    keys = f"agents.{name}."
    by_default = all(source == DEFAULT for key, source in case.loaded.sources.items() if key.startswith(keys))
    return case.named or not by_default or set(case.loaded.config.agents) != set(DRIVERS)


async def digest(case: Case, agent: AgentFound, tell: Tell) -> None:
    """The checksum, against the one that is configured; otherwise it is told, so that it can be."""
    wanted = case.loaded.config.agents[agent.name].checksum
    about = f"agent {agent.name}, checksum"
    if not agent.path or (not wanted and (agent.problem or agent.driver == SCRIPTED)):
        return
    if not agent.digest:
        tell(warning(about, f"{agent.path} cannot be read by this user", "run this as the user of the daemon"))
    elif not wanted:
        text = f"SHA-256 {agent.digest}, not pinned by agents.{agent.name}.checksum"
        tell(ok(about, text, sha256=agent.digest))
    elif not _is_another(case, agent):
        tell(ok(about, f"SHA-256 {agent.digest}, as configured", sha256=agent.digest))
    else:
        text = f"{agent.path} has the SHA-256 {agent.digest}, and {wanted} is configured"
        advice = f"see who changed the program; if it was you, set agents.{agent.name}.checksum to the new one"
        tell(problem(about, text, advice))


async def view(case: Case, agent: AgentFound, tell: Tell) -> None:
    """Whether the daemon that answers sees it likewise: its environment, and when it looked, may be others."""
    listed = case.server.get("agents", []) if case.server else []
    theirs = next((each for each in listed if each.get("name") == agent.name), None)
    if case.server is None or (theirs is not None and theirs.get("available")):
        return
    about = f"agent {agent.name}, daemon"
    if theirs is None:
        text = "the daemon that answers has no agent of this name"
        tell(warning(about, text, "restart it if the configuration was changed, or see which one it uses"))
    else:
        text = f"the daemon that answers says: {theirs.get('unavailable_reason', 'not available')}"
        tell(warning(about, text, "see that PATH and variables are the same where the daemon is started"))


async def login(case: Case, agent: AgentFound, tell: Tell) -> None:
    """Whether it has a login, as far as that shows without a request."""
    del case
    about = f"agent {agent.name}, login"
    look = LOGINS.get(agent.driver)
    if look is None:
        tell(note(about, f"it cannot be told for the driver {agent.driver}", "start a run to see"))
    else:
        tell(await found_in_time(about, partial(look, about, agent)))


async def trial(case: Case, agent: AgentFound, tell: Tell) -> None:
    """Whether it starts, and is held at its first step."""
    about = f"agent {agent.name}, gate"
    how = TRIALS.get(agent.driver)
    if not case.trying:
        tell(not_tried(about, "left out by --no-try", "leave --no-try out to have it tried"))
        return
    if how is None:
        tell(not_tried(about, f"nobody wrote how to try the driver {agent.driver}", "start a run with a stop rule"))
        return
    start_limit = case.loaded.config.processes.start_timeout_ns / 1e9
    try:
        observed = await rehearse(agent, how, start_limit)
    except Problem as error:
        advice = f"start it by hand, as in {agent.command[0]} --version, and see what it says"
        tell(problem(about, f"it could not be tried: {error.message}", advice))
        return
    for finding in judge(agent.name, how, observed):
        tell(finding)


def judge(name: str, how: Trial, observed: Observed) -> list[Finding]:
    """Say what a trial showed."""
    findings = [_start(f"agent {name}, start", observed)]
    about = f"agent {name}, gate"
    if observed.start_seconds is None:
        findings.append(not_tried(about, "it did not start", "see that it starts first"))
    elif how.gate_not_tried:
        findings.append(not_tried(about, how.gate_not_tried, "start a run with --stop-when steps=1 to see"))
    else:
        findings.append(_gate(about, observed))
    if observed.left:
        text = f"{observed.left} of its processes were still there after its end"
        findings.append(problem(f"agent {name}, end", text, "see with ps what they are, and report it"))
    return findings


def _start(about: str, observed: Observed) -> Finding:
    if observed.start_seconds is None:
        advice = "start it by hand in an empty home directory, and see what it says"
        return problem(about, f"it did not start: {what_failed(observed.run)}", advice)
    seconds, used = observed.start_seconds, observed.memory
    if used is None:
        return ok(about, f"in {seconds:.2f} s; its memory is not told", start_seconds=round(seconds, 3))
    many = f" of {used.processes} processes" if used.processes > 1 else ""
    return ok(
        about,
        f"in {seconds:.2f} s, {used.size / _MIB:.0f} MiB ({used.measure}{many})",
        start_seconds=round(seconds, 3),
        memory_bytes=used.size,
        memory_measure=used.measure,
    )


def _gate(about: str, observed: Observed) -> Finding:
    advice = "do not rely on stop rules with this agent, and report it with its version"
    run = observed.run
    if state_of(run) != "STOPPED":
        return problem(about, f"it was not stopped after its first step: {what_failed(run)}", advice)
    exact = run.get("stop_reason", {}).get("exact") is True and int(run.get("step_count", 0)) == 1
    if not exact or observed.went_on or observed.asked not in {None, 1} or observed.asked_on:
        return problem(about, f"it was not held at its first step: {_how_not(observed)}", advice)
    if observed.asked is None:
        return ok(about, "held at its first step: it did nothing while stopped; it has no model to ask")
    return ok(about, "held at its first step: 0 requests while stopped", requests_while_stopped=0)


def _how_not(observed: Observed) -> str:
    asked, run = observed.asked, observed.run
    parts = [f"{run.get('step_count', 0)} steps were made"]
    parts += [f"the model got {asked} requests, 1 was expected"] if asked not in {None, 1} else []
    parts += [f"{observed.asked_on} requests came while it was stopped"] if observed.asked_on else []
    parts += ["the work of its second step was done"] if observed.went_on else []
    return ", ".join(parts)


AGENT_CHECKS: Final[tuple[AgentCheck, ...]] = (program, digest, view, login, trial)

CHECKS: Final[tuple[Check, ...]] = (agents,)
