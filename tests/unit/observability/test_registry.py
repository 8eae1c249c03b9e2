"""What is observed is what a scrape gives, and label sets stay bounded whatever is observed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from tests.framework.metrics import samples

from steprail_daemon.observability.metrics import METRICS, MOST_SERIES, OPEN_VALUES, Kind, Metric
from steprail_daemon.observability.registry import LONGEST_QUEUE, Registry

COUNT = Metric("count_total", Kind.COUNTER, ("kind",), "Counts.", "a test")
LEVEL = Metric("level", Kind.LEVEL, (), "Goes up and down.", "a test")
GAUGE = Metric("gauge", Kind.GAUGE, (), "Is what it is.", "a test")
SPANS = Metric("spans", Kind.HISTOGRAM, (), "Spans.", "a test", buckets=(1.0, 10.0))
PAIRS = Metric("pairs_total", Kind.COUNTER, ("model", "kind"), "Pairs.", "a test")


class Stand:
    """A registry and what it complained of."""

    def __init__(self, *metrics: Metric, label_keys: tuple[str, ...] = ()) -> None:
        self.complaints: list[Exception] = []
        self.registry = Registry(
            agents=["claude"],
            tools=["Bash", "Read"],
            label_keys=label_keys,
            complain=self.complaints.append,
            metrics=metrics or METRICS,
        )
        self.observe = self.registry.observe

    def samples(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        return samples(self.registry.collect())

    def value(self, name: str, **labels: str) -> float | None:
        return self.samples().get((name, frozenset(labels.items())))

    def series(self, name: str) -> list[dict[str, str]]:
        return [dict(labels) for found, labels in self.samples() if found == name]


def test_a_counter_adds_up_by_its_labels() -> None:
    stand = Stand(COUNT)
    for kind, amount in (("a", 1), ("b", 2), ("a", 3)):
        stand.observe("count_total", amount, {"kind": kind})
    assert stand.value("steprail_count_total", kind="a") == 4
    assert stand.value("steprail_count_total", kind="b") == 2


def test_a_level_moves_by_differences_and_a_gauge_holds_the_latest_value() -> None:
    stand = Stand(LEVEL, GAUGE)
    for amount in (3, -1):
        stand.observe("level", amount, {})
    for value in (7, 5):
        stand.observe("gauge", value, {})
    assert (stand.value("steprail_level"), stand.value("steprail_gauge")) == (2, 5)


def test_before_anything_is_observed_a_counter_is_zero_and_a_gauge_is_unknown() -> None:
    stand = Stand(LEVEL, GAUGE)
    assert (stand.value("steprail_level"), stand.value("steprail_gauge")) == (0, None)


@given(st.lists(st.floats(0, 100), max_size=50))
def test_a_histogram_counts_every_value_in_each_bucket_that_holds_it(values: list[float]) -> None:
    stand = Stand(SPANS)
    for value in values:
        stand.observe("spans", value, {})
    for bound, limit in (("1.0", 1.0), ("10.0", 10.0), ("+Inf", float("inf"))):
        assert stand.value("steprail_spans_bucket", le=bound) == sum(value <= limit for value in values)
    assert stand.value("steprail_spans_sum") == pytest.approx(sum(values))
    assert stand.value("steprail_spans_count") == len(values)


def test_a_thousand_names_of_tools_agents_and_models_stay_within_their_bounds() -> None:
    stand = Stand()
    for number in range(1_000):
        name = f"name-{number}"
        stand.observe("tool_calls_total", 1, {"agent": name, "tool": name, "outcome": "succeeded"})
        stand.observe("tool_calls_total", 1, {"agent": "claude", "tool": "Bash", "outcome": "failed"})
        stand.observe("tokens_total", 1, {"agent": "claude", "model": name, "type": "input"})
        stand.observe("rate_limited_total", 1, {"provider": name, "kind": "transient"})
    assert stand.complaints == []
    assert stand.value("steprail_tool_calls_total", agent="other", tool="other", outcome="succeeded") == 1_000
    assert stand.value("steprail_tool_calls_total", agent="claude", tool="Bash", outcome="failed") == 1_000
    assert len(stand.series("steprail_tool_calls_total")) == 2
    assert len(stand.series("steprail_tokens_total")) == OPEN_VALUES + 1
    beyond = 1_000 - OPEN_VALUES
    assert stand.value("steprail_tokens_total", agent="claude", model="other", type="input") == beyond
    assert stand.value("steprail_rate_limited_total", provider="other", kind="transient") == beyond


@pytest.mark.parametrize("metric", [metric for metric in METRICS if metric.labels], ids=lambda metric: metric.name)
def test_no_metric_has_more_series_than_its_bound_whatever_its_labels_are_given(metric: Metric) -> None:
    stand = Stand(metric, label_keys=("team",))
    for number in range(1_000):
        labels = {label: f"{label}-{number}" for label in metric.labels}
        if metric.run_labels:
            labels["label_team"] = f"team-{number}"
        stand.observe(metric.name, 1, labels)
    total = [
        value for (name, _), value in stand.samples().items() if name in (metric.full_name, f"{metric.full_name}_count")
    ]
    assert stand.complaints == []
    assert len(total) <= 201
    assert sum(total) == 1_000 or metric.kind is Kind.GAUGE


def test_label_sets_that_multiply_end_in_one_series() -> None:
    stand = Stand(PAIRS)
    for model in range(OPEN_VALUES):
        for kind in range(100):
            stand.observe("pairs_total", 1, {"model": f"m{model}", "kind": f"k{kind}"})
    series = stand.series("steprail_pairs_total")
    assert len(series) == MOST_SERIES + 1
    assert stand.value("steprail_pairs_total", model="other", kind="other") == OPEN_VALUES * 100 - MOST_SERIES


def test_session_labels_that_are_named_become_labels() -> None:
    stand = Stand(label_keys=("team", "cost-centre"))
    labels = {"agent": "claude", "label_team": "payments", "label_cost_centre": "7"}
    stand.observe("steps_total", 1, labels)
    assert stand.value("steprail_steps_total", **labels) == 1


@pytest.mark.parametrize(
    ("name", "labels"), [("nothing_total", {}), ("count_total", {}), ("count_total", {"kind": "a", "more": "b"})]
)
def test_what_no_declaration_fits_is_complained_of_and_the_rest_is_counted(name: str, labels: dict[str, str]) -> None:
    stand = Stand(COUNT)
    stand.observe(name, 1, labels)
    stand.observe("count_total", 1, {"kind": "a"})
    assert stand.value("steprail_count_total", kind="a") == 1
    assert len(stand.complaints) == 1


def test_what_nobody_settles_is_counted_before_it_takes_too_much_memory() -> None:
    stand = Stand(LEVEL)
    for _ in range(LONGEST_QUEUE * 2):
        stand.observe("level", 1, {})
    assert len(stand.registry._queue) <= LONGEST_QUEUE
    assert stand.value("steprail_level") == LONGEST_QUEUE * 2


def test_two_registries_share_nothing() -> None:
    one, other = Stand(LEVEL), Stand(LEVEL)
    one.observe("level", 1, {})
    assert (one.value("steprail_level"), other.value("steprail_level")) == (1, 0)


def test_a_scrape_is_well_formed_in_both_formats() -> None:
    stand = Stand()
    stand.observe("steps_total", 1, {"agent": "claude"})
    stand.observe("run_duration_seconds", 2, {"agent": "claude", "outcome": "completed"})
    assert b'steprail_steps_total{agent="claude"} 1.0' in generate_latest(stand.registry.prometheus)
    text = generate_openmetrics(stand.registry.prometheus).decode()  # type: ignore[no-untyped-call]
    names = {family.name for family in text_string_to_metric_families(text)}  # type: ignore[no-untyped-call]
    assert {"steprail_steps", "steprail_run_duration_seconds", "grpc_server_handled"} <= names
