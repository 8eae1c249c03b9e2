"""Which scenario moves which metric; together all that are declared. And how to read what a daemon shows."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterable

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

#: Moved by facts: tests/unit/observability/test_rows.py.
BY_FACTS = frozenset(
    {
        "sessions",
        "runs_queued",
        "runs_total",
        "run_duration_seconds",
        "steps_total",
        "step_duration_seconds",
        "steps_per_run",
        "tool_calls_total",
        "step_decisions_total",
        "step_decision_wait_seconds",
        "stop_rule_fired_total",
        "permissions_pending",
        "permission_wait_seconds",
        "tokens_total",
        "usage_unknown_total",
        "cost_usd_total",
        "rate_limited_total",
        "event_batches_total",
        "events_total",
    }
)
#: Moved by the engine: tests/unit/engine/test_observing.py.
BY_ENGINE = frozenset(
    {
        "agent_starts_total",
        "agent_start_seconds",
        "agent_exits_total",
        "journal_refusals_total",
        "rate_limit_backoff_seconds",
        "watchers",
        "watcher_lag_events",
    }
)
#: Moved by a daemon as it is built: tests/integration/observability/test_daemon.py.
BY_DAEMON = frozenset(
    {
        "processes_killed_total",
        "orphans_reaped_total",
        "journal_commit_seconds",
        "journal_bytes",
        "event_loop_lag_seconds",
        "build_info",
        "grpc_server_handled_total",
        "grpc_server_handling_seconds",
    }
)


def get(url: str, timeout: float = 10.0) -> tuple[int, str]:
    """Give status and body of an answer."""
    try:
        with urllib.request.urlopen(url, timeout=timeout) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def samples(families: Iterable[Metric]) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Give every sample by its name and labels."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def moved(text: str) -> set[str]:
    """Give the names, without prefix, of the metrics in a scrape of which something was observed."""
    found = set()
    for (name, _), value in samples(text_string_to_metric_families(text)).items():
        if value and not name.endswith(("_bucket", "_sum")):
            found.add(name.removesuffix("_count").removeprefix("steprail_"))
    return found
