"""What is declared is right in itself, moved by some scenario, and on the page."""

import re

from tests.framework.metrics import BY_DAEMON, BY_ENGINE, BY_FACTS

from steprail_daemon.observability import document
from steprail_daemon.observability.metrics import LABELS, METRICS, Kind

NAMES = [metric.name for metric in METRICS]
#: Labels that would have a value for each of what comes and goes.
UNBOUNDED = {"session_id", "run_id", "step_id", "session", "run", "user", "identity", "tenant", "request_id", "pid"}


def test_every_metric_is_declared_once_and_moved_by_some_scenario() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert set(NAMES) == BY_FACTS | BY_ENGINE | BY_DAEMON


def test_every_label_has_its_bound_described_and_none_is_an_id() -> None:
    used = {label for metric in METRICS for label in metric.labels}
    assert used == set(LABELS)
    assert not used & UNBOUNDED


def test_names_and_kinds_follow_the_conventions_of_prometheus() -> None:
    for metric in METRICS:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", metric.name)
        assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER), metric.name
        assert bool(metric.buckets) == (metric.kind is Kind.HISTOGRAM), metric.name
        assert list(metric.buckets) == sorted(set(metric.buckets)), metric.name
        assert metric.name.endswith("_seconds") == (metric.unit == "seconds"), metric.name


def test_every_metric_is_on_the_page() -> None:
    page = document.page()
    assert [metric.full_name for metric in METRICS if f"| `{metric.full_name}` |" not in page] == []
