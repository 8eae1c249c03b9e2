"""Every metric, declared once: name, kind, labels, meaning, and what moves it. To add a metric, add a declaration.

Names have base units, and `steprail_` before them where Prometheus sees them, but for the gRPC server's own, which are
named as everywhere. No session, run or user ids are labels, and no label has values without a bound: what a label
may take is in `LABELS`, further values become `other`. `registry` counts, `sink` moves what the core's facts move, and
`document` writes the reference page from what stands here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Final

#: What a label says in place of values that are over its bound.
OTHER: Final = "other"
#: What a label says where the value is not known.
UNKNOWN: Final = "unknown"

#: Values that a label may take which are not known beforehand, before the rest is `other`.
OPEN_VALUES: Final = 50
#: The same for labels whose values the program itself has a list of: a bound that only a mistake reaches.
LISTED_VALUES: Final = 200
#: Series of one metric. Label sets beyond become `other` in every label.
MOST_SERIES: Final = 2_000

#: Before the name of a session label that `metrics.label_keys` names.
LABEL_PREFIX: Final = "label_"


class Kind(Enum):
    """How values come together."""

    #: Only grows.
    COUNTER = "counter"
    #: Moved by differences, up and down.
    LEVEL = "gauge (level)"
    #: The latest value holds.
    GAUGE = "gauge"
    #: Counts of values up to each of some bounds, and their sum.
    HISTOGRAM = "histogram"


@dataclass(frozen=True)
class Metric:
    """One metric. `moved_by` names the fact of the core or the room that moves it.

    `run_labels`: it carries the session labels of `metrics.label_keys` too.
    """

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    moved_by: str
    unit: str = ""
    buckets: tuple[float, ...] = field(default=())
    run_labels: bool = False

    @property
    def full_name(self) -> str:
        """The name that Prometheus sees."""
        return self.name if self.name.startswith("grpc_server_") else f"steprail_{self.name}"


#: Seconds, from what a program does by itself to what waits for people.
_INSTANTS: Final = (0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.1, 1.0)
_MOMENTS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
_CALLS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 300.0)
_STARTS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_STEPS: Final = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
_WAITS: Final = (0.001, 0.01, 0.1, 1.0, 5.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
_RUNS: Final = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 43200.0)
_COUNTS: Final = (0.0, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0)
_EVENTS: Final = (0.0, 10.0, 100.0, 1_000.0, 10_000.0, 100_000.0)

#: What bounds each label.
LABELS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "action": "`continue` or `stop`",
        "agent": "the agents of the configuration",
        "basis": "where the amount comes from: `reported`, `priced` or `mixed`",
        "cause": "`ended` (by the daemon), `exit` (with 0), `error` (with another code), `signal` or `unknown`",
        "grpc_code": "gRPC's status codes",
        "grpc_method": "the methods of the API",
        "grpc_service": "the services of the API",
        "kind": "a kind of event, rule or limit, as the API names it",
        "model": f"the first {OPEN_VALUES} that agents reported; `unknown` where they do not say",
        "outcome": "what came of it, as the API names it",
        "provider": f"the first {OPEN_VALUES} that agents reported; `unknown` where they do not say",
        "python": "the version of Python",
        "reason": "of a stop or a failure, as the API names it; empty where there is none",
        "signal": "`INT`, `TERM`, `KILL` or `other`",
        "source": "where a decision came from, as the API names it",
        "state": "the states of a session, as the API names them",
        "tool": "the names in `metrics.tools`",
        "type": "`input`, `cached_input`, `cache_write`, `output` or `reasoning`",
        "version": "the version of the daemon",
    }
)

METRICS: Final[tuple[Metric, ...]] = (
    # Sessions and runs
    Metric("sessions", Kind.LEVEL, ("agent", "state"), "Sessions that are not closed.", "SessionStateChanged"),
    Metric("runs_queued", Kind.LEVEL, (), "Runs that wait for their turn or their agent.", "RunStateChanged"),
    Metric(
        "runs_total",
        Kind.COUNTER,
        ("agent", "outcome", "reason"),
        "Runs that ended. `reason` is the kind of the stop or the reason of the failure.",
        "RunEnded",
        run_labels=True,
    ),
    Metric(
        "run_duration_seconds",
        Kind.HISTOGRAM,
        ("agent", "outcome"),
        "Wall time of a run from its acceptance to its end, waiting included. Not of runs that a restart ended.",
        "RunEnded",
        "seconds",
        _RUNS,
    ),
    Metric("steps_total", Kind.COUNTER, ("agent",), "Steps that were completed.", "StepEnded", run_labels=True),
    Metric(
        "step_duration_seconds",
        Kind.HISTOGRAM,
        ("agent",),
        "Time from one step boundary to the next, the wait at the former included.",
        "StepEnded",
        "seconds",
        _STEPS,
    ),
    Metric("steps_per_run", Kind.HISTOGRAM, (), "Completed steps of a run.", "RunEnded", "steps", _COUNTS),
    Metric(
        "tool_calls_total",
        Kind.COUNTER,
        ("agent", "tool", "outcome"),
        "Tool calls of completed steps of the main loop.",
        "StepEnded",
        run_labels=True,
    ),
    # Boundaries
    Metric(
        "step_decisions_total",
        Kind.COUNTER,
        ("action", "source"),
        "Decisions at step boundaries.",
        "DecisionRecorded",
    ),
    Metric(
        "step_decision_wait_seconds",
        Kind.HISTOGRAM,
        ("source",),
        "How long the agent waited at the boundary for the decision. 0 where it was made at once.",
        "DecisionRecorded",
        "seconds",
        _WAITS,
    ),
    Metric(
        "stop_rule_fired_total",
        Kind.COUNTER,
        ("kind",),
        "Stop rules that matched at a boundary.",
        "StepEnded",
    ),
    Metric(
        "permissions_pending",
        Kind.LEVEL,
        (),
        "Permissions that somebody is asked for and that are not resolved.",
        "PermissionRequested, PermissionResolved",
    ),
    Metric(
        "permission_wait_seconds",
        Kind.HISTOGRAM,
        ("outcome",),
        "How long a permission that somebody was asked for waited: `allowed`, `denied`, `timed_out` or `withdrawn`.",
        "PermissionResolved",
        "seconds",
        _WAITS,
    ),
    # Use
    Metric(
        "tokens_total",
        Kind.COUNTER,
        ("agent", "model", "type"),
        "Tokens as agents report them, step by step, and the rest at the end of a run. Cached input is a part of "
        "input, reasoning a part of output.",
        "StepEnded, RunEnded",
        "tokens",
        run_labels=True,
    ),
    Metric(
        "usage_unknown_total",
        Kind.COUNTER,
        ("agent",),
        "Runs that took up their prompt and whose tokens are not known, or not all of them.",
        "RunEnded",
        run_labels=True,
    ),
    Metric(
        "cost_usd_total",
        Kind.COUNTER,
        ("agent", "model", "basis"),
        "Money in US dollars, counted as tokens are.",
        "StepEnded, RunEnded",
        "USD",
        run_labels=True,
    ),
    Metric(
        "rate_limited_total",
        Kind.COUNTER,
        ("provider", "kind"),
        "Requests that a model's provider refused, as agents report them.",
        "RateLimited",
    ),
    Metric(
        "rate_limit_backoff_seconds",
        Kind.HISTOGRAM,
        ("provider",),
        "How long no run of an agent is started after its provider refused a request.",
        "engine/rate_limits.py",
        "seconds",
        _WAITS,
    ),
    # Agents' processes
    Metric(
        "agent_starts_total",
        Kind.COUNTER,
        ("agent", "outcome"),
        "Starts of an agent's process: `ready` or `failed`.",
        "engine/host.py",
    ),
    Metric(
        "agent_start_seconds",
        Kind.HISTOGRAM,
        ("agent",),
        "Time until an agent that was started takes prompts.",
        "engine/host.py",
        "seconds",
        _STARTS,
    ),
    Metric(
        "agent_exits_total",
        Kind.COUNTER,
        ("agent", "cause"),
        "Ends of an agent's process after it was started.",
        "engine/host.py",
    ),
    Metric(
        "processes_killed_total",
        Kind.COUNTER,
        ("signal",),
        "Signals sent to processes of agents, and processes that were killed with their tree.",
        "supervisor/link.py",
    ),
    Metric(
        "orphans_reaped_total",
        Kind.COUNTER,
        (),
        "Processes that agents left behind and whose exit the parent process took.",
        "supervisor/link.py",
    ),
    # Journal and streams
    Metric(
        "journal_commit_seconds",
        Kind.HISTOGRAM,
        (),
        "Time of one commit.",
        "journal/sqlite.py",
        "seconds",
        _INSTANTS,
    ),
    Metric(
        "journal_bytes",
        Kind.GAUGE,
        (),
        "Size of the journal with its write-ahead log, every five seconds.",
        "daemon.py",
        "bytes",
    ),
    Metric(
        "journal_refusals_total",
        Kind.COUNTER,
        (),
        "Commits that the journal refused. They are tried again, or the call is refused with JOURNAL_UNAVAILABLE.",
        "engine/ledger.py",
    ),
    Metric("event_batches_total", Kind.COUNTER, (), "Batches of events that were committed.", "every commit"),
    Metric("events_total", Kind.COUNTER, ("kind",), "Events that were committed.", "every commit"),
    Metric("watchers", Kind.LEVEL, (), "Streams that follow a session or a run.", "engine/broker.py"),
    Metric(
        "watcher_lag_events",
        Kind.HISTOGRAM,
        (),
        "Events that were there for a watcher when it took the next ones, beyond those that it took.",
        "engine/broker.py",
        "events",
        _EVENTS,
    ),
    # The daemon
    Metric(
        "event_loop_lag_seconds",
        Kind.HISTOGRAM,
        (),
        "How late the event loop was, four times a second.",
        "observability/pulse.py",
        "seconds",
        _MOMENTS,
    ),
    Metric("build_info", Kind.GAUGE, ("version", "python"), "Always 1; the labels tell.", "daemon.py"),
    Metric(
        "grpc_server_handled_total",
        Kind.COUNTER,
        ("grpc_service", "grpc_method", "grpc_code"),
        "Calls that ended.",
        "service/handlers.py",
    ),
    Metric(
        "grpc_server_handling_seconds",
        Kind.HISTOGRAM,
        ("grpc_service", "grpc_method", "grpc_code"),
        "Time of a call; of a stream as long as it was open.",
        "service/handlers.py",
        "seconds",
        _CALLS,
    ),
)
