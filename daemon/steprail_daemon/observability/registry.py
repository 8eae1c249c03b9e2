"""Counts what is observed and gives it to Prometheus: one registry a daemon, no global state.

`observe` is for the hot path and only notes. `settle` counts what was noted, in pure Python on plain lists, which costs
a third of what the library's own counters do. Both may be called from any thread; so may a scrape, which settles first.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from steprail_daemon.observability.metrics import (
    LABEL_PREFIX,
    LISTED_VALUES,
    METRICS,
    MOST_SERIES,
    OPEN_VALUES,
    OTHER,
    Kind,
    Metric,
)

#: What may be noted before it is counted at once, whoever's time that takes.
LONGEST_QUEUE: Final = 20_000
#: How much is counted under one hold of the lock.
_PORTION: Final = 500

Labels = Mapping[str, str]
Observe = Callable[[str, float, Labels], None]
Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily

_OPEN_LABELS: Final = frozenset({"model", "provider"})


class Values:
    """The values that one label may take: those of a list, or the first so many that come."""

    def __init__(self, listed: Iterable[str] | None, most: int) -> None:
        self._known = set(listed or ())
        self._room = 0 if listed is not None else most

    def admit(self, value: str) -> str:
        """Give the value, or `other`."""
        known = self._known
        if value in known:
            return value
        if self._room:
            self._room -= 1
            known.add(value)
            return value
        return OTHER


class _Series:
    """One metric's counts by label values. A histogram's cell has a count for each bucket and +Inf, then the sum."""

    def __init__(self, metric: Metric, labels: tuple[str, ...], values: Sequence[Values]) -> None:
        self.metric = metric
        self.labels = labels
        self._values = tuple(values)
        self._replaces = metric.kind is Kind.GAUGE
        self._buckets = metric.buckets
        self._size = len(metric.buckets) + 2 if metric.kind is Kind.HISTOGRAM else 1
        self._cells: dict[tuple[str, ...], list[float]] = {}
        #: Cells by label values as they came, before their bounds: what was seen before needs no further look.
        self._seen: dict[tuple[str, ...], list[float]] = {}
        if not labels and metric.kind is not Kind.GAUGE:
            # What only grows or is moved begins at 0; what a gauge is has to be told first.
            self._cell(())

    def move(self, value: float, labels: Labels) -> None:
        """Count a value."""
        if len(labels) != len(self.labels):
            raise ValueError(f"{self.metric.name} has the labels {self.labels}, not {tuple(labels)}")
        came = tuple(map(labels.__getitem__, self.labels))
        cell = self._seen.get(came)
        if cell is None:
            cell = self._cell(tuple([values.admit(value) for value, values in zip(came, self._values, strict=True)]))
            if len(self._seen) < MOST_SERIES:
                self._seen[came] = cell
        if self._size > 1:
            cell[bisect_left(self._buckets, value)] += 1
            cell[-1] += value
        elif self._replaces:
            cell[0] = value
        else:
            cell[0] += value

    def _cell(self, key: tuple[str, ...]) -> list[float]:
        cell = self._cells.get(key)
        if cell is None:
            if len(self._cells) >= MOST_SERIES:
                key = (OTHER,) * len(key)
            cell = self._cells.setdefault(key, [0.0] * self._size)
        return cell

    def family(self) -> Family:
        """Give what there is in the library's form."""
        metric, labels = self.metric, list(self.labels)
        if metric.kind is Kind.HISTOGRAM:
            histogram = HistogramMetricFamily(metric.full_name, metric.help, labels=labels)
            for key, cell in self._cells.items():
                histogram.add_metric(key, self._buckets_of(cell), cell[-1])
            return histogram
        make = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
        family = make(metric.full_name, metric.help, labels=labels)
        for key, cell in self._cells.items():
            family.add_metric(key, cell[0])
        return family

    def _buckets_of(self, cell: list[float]) -> list[tuple[str, float]]:
        total = 0.0
        found: list[tuple[str, float]] = []
        for bound, count in zip([*map(str, self._buckets), "+Inf"], cell, strict=False):
            total += count
            found.append((bound, total))
        return found


class Registry(Collector):
    """The metrics of one daemon; see the module docstring.

    `agents` and `tools` are the names that their labels may take, `label_keys` those of session labels that become
    labels of the metrics declared with `run_labels`. `complain` is told of an observation that no declaration fits: a
    bug, which must not end what is observed.
    """

    def __init__(
        self,
        *,
        agents: Iterable[str],
        tools: Iterable[str],
        label_keys: Iterable[str] = (),
        complain: Callable[[Exception], None],
        metrics: Sequence[Metric] = METRICS,
    ) -> None:
        self.label_keys = {key: label_name(key) for key in label_keys}
        self._complain = complain
        self._lock = threading.Lock()
        self._queue: deque[tuple[str, float, Labels]] = deque()
        listed: dict[str, Iterable[str]] = {"agent": agents, "tool": tools}
        bounds: dict[str, Values] = {}
        self._series: dict[str, _Series] = {}
        for metric in metrics:
            labels = (*metric.labels, *self.label_keys.values()) if metric.run_labels else metric.labels
            for label in labels:
                if label not in bounds:
                    is_open = label in _OPEN_LABELS or label.startswith(LABEL_PREFIX)
                    bounds[label] = Values(listed.get(label), OPEN_VALUES if is_open else LISTED_VALUES)
            self._series[metric.name] = _Series(metric, labels, [bounds[label] for label in labels])
        self.prometheus = CollectorRegistry(auto_describe=False)
        self.prometheus.register(self)
        ProcessCollector(registry=self.prometheus)

    def observe(self, name: str, value: float, labels: Labels) -> None:
        """Note a value of a metric: what to add to a counter or a level, what a gauge is, one value of a histogram.

        `labels` has exactly the declared ones. It is kept until it is counted, so that it must not change.
        """
        queue = self._queue
        queue.append((name, value, labels))
        if len(queue) > LONGEST_QUEUE:
            self.settle()

    def settle(self) -> None:
        """Count everything that was noted."""
        while self.settle_some():
            pass

    def settle_some(self) -> bool:
        """Count some of what was noted, in less than about a millisecond; whether more is left."""
        with self._lock:
            self._settle_portion()
        return bool(self._queue)

    def _settle_portion(self) -> None:
        queue, series = self._queue, self._series
        for _ in range(_PORTION):
            try:
                name, value, labels = queue.popleft()
            except IndexError:
                return
            try:
                series[name].move(value, labels)
            except (KeyError, ValueError) as error:
                self._complain(error)

    def collect(self) -> list[Family]:
        """Give everything that was observed, for a scrape."""
        self.settle()
        with self._lock:
            return [series.family() for series in self._series.values()]


def label_name(key: str) -> str:
    """Give the label that a session label becomes: what Prometheus takes in no name becomes `_`."""
    return LABEL_PREFIX + "".join(char if char.isascii() and char.isalnum() else "_" for char in key)
