"""Puts the store's states on the page: when a poll ends, and when a reading expires."""

import asyncio
import platform
import time
from collections.abc import Mapping

from . import __version__, metrics
from .event_families import clamped_events, event_families
from .exposition import AnySample, Page, Sample
from .labels import LabelGroup
from .metrics import Metric
from .reading import GaugeKey, Grouped
from .store import DatabaseState, Owner, QueueState, configured_gauges

Families = dict[Metric, list[AnySample]]

_EXPIRY_GRACE = 0.01


class Publisher:
    """Renders owners onto a page and keeps a timer for each, so that a poller that hangs cannot
    keep old numbers alive."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._owners: dict[int, Owner] = {}

    def publish(self, owner: Owner) -> None:
        """Renders an owner now, and again when its next reading expires."""
        now = time.monotonic()
        self._owners[id(owner)] = owner
        self._page.put(id(owner), self._families(owner, now))
        self._cancel(owner)
        expiry = owner.next_expiry(now)
        if expiry is not None:
            loop = asyncio.get_running_loop()
            self._timers[id(owner)] = loop.call_later(expiry + _EXPIRY_GRACE, self.publish, owner)

    def retire(self, owner: Owner) -> None:
        """Takes an owner off the page."""
        self._cancel(owner)
        self._page.remove(id(owner))
        self._owners.pop(id(owner), None)

    def _cancel(self, owner: Owner) -> None:
        timer = self._timers.pop(id(owner), None)
        if timer is not None:
            timer.cancel()

    def publish_exporter(self, *, reload_ok: bool, reloaded: float, write_errors: int) -> None:
        """The exporter's own families. ``reloaded`` is a unix time."""
        self._page.put(
            "exporter",
            {
                metrics.BUILD_INFO: [Sample((__version__, platform.python_version()), 1)],
                metrics.RELOAD_SUCCESSFUL: [Sample((), int(reload_ok))],
                metrics.RELOAD_TIMESTAMP: [Sample((), reloaded)],
                metrics.STATE_WRITE_ERRORS: [Sample((), write_errors)],
            },
        )

    def _families(self, owner: Owner, now: float) -> Families:
        if isinstance(owner, DatabaseState):
            return database_families(owner, now)
        families = queue_families(owner, now)
        if self._describes_table(owner):
            families |= table_families(owner, now)
        return families

    def _describes_table(self, owner: QueueState) -> bool:
        """Two queues may share a table: its figures stand on the page once."""
        if owner.table is None:
            return False
        for other in self._owners.values():
            if other is owner:
                return True
            if (
                isinstance(other, QueueState)
                and other.table is not None
                and other.config.database == owner.config.database
                and other.table.value.table == owner.table.value.table
            ):
                return False
        return True


def queue_families(state: QueueState, now: float) -> Families:
    """Every family that carries the label ``queue``."""
    database = state.config.database
    families: Families = {}
    for timed in state.steps.values():
        if not state.is_fresh(timed.taken, now):
            continue
        for key, grouped in timed.value.gauges.items():
            families.setdefault(key[0], []).extend(_gauge_samples(state, key, grouped))
        for (metric, value), moment in timed.value.newest.items():
            label = state.labels.queue_label(value)
            families.setdefault(metric, []).append(Sample((database, label), moment))
    families |= event_families(state)
    for queue in state.labels.queues():
        for metric, samples in _watcher_families(state, queue, now).items():
            families.setdefault(metric, []).extend(samples)
    return families


def _gauge_samples(state: QueueState, key: GaugeKey, grouped: Grouped) -> list[Sample]:
    metric, status = key
    merged, unknown = _merged(state, metric, grouped)
    samples = []
    for queue in state.labels.queues():
        for task_type in state.labels.task_types(queue):
            labels = (queue, task_type)
            if labels in unknown:
                continue
            value = merged.get(labels, 0.0 if grouped.complete else None)
            if value is not None:
                extra = () if status is None else (status,)
                samples.append(Sample((state.config.database, queue, task_type, *extra), value))
    return samples


def _merged(
    state: QueueState, metric: Metric, grouped: Grouped
) -> tuple[Mapping[LabelGroup, float], set[LabelGroup]]:
    """Values by label: groups that share one (``_other``, cut values) are put together."""
    merged: dict[LabelGroup, float] = {}
    for group, value in grouped.values.items():
        labels = state.labels.label(group)
        if labels not in merged:
            merged[labels] = value
        elif metric.merge == "sum":
            merged[labels] += value
        else:
            merged[labels] = max(merged[labels], value)
    return merged, {state.labels.label(group) for group in grouped.unknown}


def _watcher_families(state: QueueState, queue: str, now: float) -> Families:
    config = state.config
    labels = (config.database, queue)
    values: dict[Metric, float] = {
        **configured_gauges(config),
        metrics.CLAMPED_VALUES: state.clamped + clamped_events(state, queue),
        metrics.UP: int(state.is_up(now)),
        metrics.POLL_INTERVAL: state.pace,
        metrics.POLLS: state.polls,
    }
    if state.has_type:
        values[metrics.TASK_TYPES_LIMITED] = int(state.labels.types_limited(queue))
    if state.duration is not None:
        values[metrics.POLL_DURATION] = state.duration
    if state.last_success is not None:
        values[metrics.LAST_SUCCESS] = state.last_success.value
    families: Families = {metric: [Sample(labels, value)] for metric, value in values.items()}
    families[metrics.INFO] = [Sample((*labels, state.table_label, config.preset), 1)]
    families[metrics.POLL_ERRORS] = [
        Sample((*labels, reason), count) for reason, count in state.errors.items()
    ]
    return families


def table_families(state: QueueState, now: float) -> Families:
    """The families that carry the label ``table``."""
    if state.table is None or not state.is_fresh(state.table.taken, now):
        return {}
    labels = (state.config.database, state.table.value.table)
    families: Families = {
        metric: [Sample(labels, value)] for metric, value in state.table.value.values.items()
    }
    if state.events.rows is not None:
        inserted, deleted = state.events.rows.totals
        families[metrics.ROWS_INSERTED] = [Sample(labels, inserted)]
        families[metrics.ROWS_DELETED] = [Sample(labels, deleted)]
    if state.has_queue:
        families[metrics.QUEUES_LIMITED] = [Sample(labels, int(state.labels.queues_limited))]
    return families


def database_families(state: DatabaseState, now: float) -> Families:
    """The families of a database itself."""
    families: Families = {metrics.DATABASE_UP: [Sample((state.name,), int(state.up))]}
    reading = state.fresh(now)
    if reading is not None and state.up:
        families[metrics.DATABASE_IN_RECOVERY] = [Sample((state.name,), int(reading.in_recovery))]
        for (metric, holder), value in reading.horizon.items():
            families.setdefault(metric, []).append(Sample((state.name, holder), value))
    return families
