"""What the exporter knows now: the latest reading of each queue, table and database.

Whoever changes something here tells the publisher; nothing here knows how a page looks.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from . import metrics
from .config import QueueConfig
from .errors import Reason
from .event_layout import Layout, layout_of
from .events import EventState, converted
from .labels import LabelSets, SavedLabels
from .metrics import Metric
from .model import QueueModel
from .reading import CLOCK_TOLERANCE, DatabaseReading, GaugeKey, Grouped, Step, TableReading
from .slices import Key

STALE_INTERVALS = 3
"""Gauges vanish when the last good poll is older than this many of the queue's current pace."""
MAX_PACE = 120.0
"""Seconds to which a poll that exceeds its budget may stretch its interval."""
MAX_AGE = 10 * 365 * 86400.0
"""Seconds above which an age is a sentinel ('-infinity', year 1), not an age."""

_AGES = (
    metrics.OLDEST_TASK_AGE,
    metrics.OLDEST_READY_AGE,
    metrics.OLDEST_PROCESSING_AGE,
    metrics.OLDEST_EXPIRED_AGE,
)


T = TypeVar("T")


@dataclass(frozen=True)
class Timed(Generic[T]):
    """A reading and when it was taken, by the monotonic clock."""

    value: T
    taken: float


@dataclass
class QueueState:
    """Everything known of one configured queue."""

    config: QueueConfig
    labels: LabelSets
    pace: float
    started: float
    model: QueueModel
    layout: Layout
    events: EventState = field(default_factory=EventState)
    exemplars: dict[tuple[Key, int], tuple[str, int]] = field(default_factory=dict)
    sees_reclaims: bool = False
    steps: dict[str, Timed[Step]] = field(default_factory=dict)
    table: Timed[TableReading] | None = None
    polls: int = 0
    errors: dict[Reason, int] = field(default_factory=lambda: dict.fromkeys(Reason, 0))
    clamped: int = 0
    duration: float | None = None
    succeeded: bool = False
    last_success: Timed[float] | None = None
    last_end: float | None = None
    last_error: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """(database, name)."""
        return self.config.database, self.config.name

    @property
    def table_label(self) -> str:
        """The label ``table``."""
        return self.model.table.label

    @property
    def has_queue(self) -> bool:
        """Whether the table holds many queues."""
        return self.model.get("queue") is not None

    @property
    def has_type(self) -> bool:
        """Whether tasks have types."""
        return self.model.get("task_type") is not None

    @property
    def stale_after(self) -> float:
        """Seconds after which a reading is no longer shown."""
        return STALE_INTERVALS * self.pace

    def is_fresh(self, taken: float, now: float) -> bool:
        """Whether a reading taken then may still be shown."""
        return now - taken < self.stale_after

    def is_up(self, now: float) -> bool:
        """Whether the last poll succeeded and is not stale."""
        success = self.last_success
        return self.succeeded and success is not None and self.is_fresh(success.taken, now)

    def next_expiry(self, now: float) -> float | None:
        """Seconds until the next reading expires that is still shown."""
        taken = [timed.taken for timed in self.steps.values()]
        if self.table is not None:
            taken.append(self.table.taken)
        if self.last_success is not None:
            taken.append(self.last_success.taken)
        left = [self.stale_after - (now - moment) for moment in taken]
        return min((seconds for seconds in left if seconds > 0), default=None)

    def take_over(self, former: "QueueState") -> None:
        """Goes on counting where a former state of the same queue stopped."""
        self.polls, self.clamped = former.polls, former.clamped
        self.errors = dict(former.errors)
        if former.config.table == self.config.table:
            self.steps, self.table = former.steps, former.table
            self.succeeded, self.last_success = former.succeeded, former.last_success
            self.duration, self.last_end = former.duration, former.last_end
            self.restore(former.labels.saved(), former.events, former.layout)

    def restore(self, labels: SavedLabels, events: EventState, layout: Layout) -> None:
        """Goes on with label sets and event counters that were kept."""
        self.labels.restore(labels)
        self.events = converted(events, layout, self.layout)

    def begin_poll(self) -> None:
        """Counts a poll that begins."""
        self.polls += 1

    def put_step(self, step: Step, now: float) -> None:
        """Takes one step's gauges, with impossible values clamped and counted."""
        gauges = {key: self._clamped(key, grouped) for key, grouped in step.gauges.items()}
        for group in sorted(step.groups(), key=lambda group: [label or "" for label in group]):
            self.labels.label(group)
        for _, queue in step.newest:
            self.labels.queue_label(queue)
        self.steps[step.name] = Timed(Step(step.name, gauges, step.newest), now)
        self.clamped += step.clamped

    def _clamped(self, key: GaugeKey, grouped: Grouped) -> Grouped:
        if key[0] not in _AGES:
            return grouped
        values = {}
        for group, value in grouped.values.items():
            values[group] = round(min(max(value, 0.0), MAX_AGE), 3)
            self.clamped += value < -CLOCK_TOLERANCE or value > MAX_AGE
        return Grouped(values, grouped.unknown, complete=grouped.complete)

    def end_poll(self, duration: float | None, error: tuple[Reason, str] | None) -> None:
        """Notes how a poll ended; a long one stretches the pace, a short one restores it.

        ``duration`` is None where nothing was asked of the server.
        """
        now = time.monotonic()
        self.last_end = now
        self.succeeded = error is None
        if error is None:
            self.last_success = Timed(time.time(), now)
            self.last_error = ""
        else:
            self.errors[error[0]] += 1
            self.last_error = error[1]
        if duration is not None:
            self.duration = duration
            interval = self.config.interval
            stretched = min(duration / self.config.budget, max(interval, MAX_PACE))
            self.pace = max(interval, stretched)


@dataclass
class DatabaseState:
    """Everything known of one database itself."""

    name: str
    stale_after: float
    up: bool = False
    reading: Timed[DatabaseReading] | None = None
    error: str = ""

    def next_expiry(self, now: float) -> float | None:
        """Seconds until the reading expires, None where none is shown."""
        if self.reading is None:
            return None
        left = self.stale_after - (now - self.reading.taken)
        return left if left > 0 else None

    def fresh(self, now: float) -> DatabaseReading | None:
        """The reading that may still be shown."""
        if self.reading is None or now - self.reading.taken >= self.stale_after:
            return None
        return self.reading.value


Owner = QueueState | DatabaseState
Publish = Callable[[Owner], None]


def new_queue_state(config: QueueConfig) -> QueueState:
    """The state of a queue that was never read."""
    labels = LabelSets(config.name, config.max_queues, config.max_task_types)
    model = config.model()
    started = time.monotonic()
    return QueueState(config, labels, config.interval, started, model, layout_of(config))


def configured_gauges(config: QueueConfig) -> dict[Metric, float]:
    """The gauges that come from the configuration, those that are set."""
    values: dict[Metric, float | int | None] = {
        metrics.FAILED_WINDOW_SECONDS: config.failed_window,
        metrics.OBJECTIVE_SECONDS: config.objective,
        metrics.LEASE_SECONDS: config.lease,
        metrics.MAX_RUNTIME_SECONDS: config.max_runtime,
        metrics.MAX_SILENCE_SECONDS: config.max_silence,
        metrics.ATTEMPTS_LIMIT: config.attempts_limit,
        metrics.FAILED_TOLERATED: config.failed_tolerated,
        metrics.POLL_INTERVAL_CONFIGURED: config.interval,
    }
    return {metric: float(value) for metric, value in values.items() if value is not None}
