"""Words for scenarios: series of samples, and what must fire when.

Samples come every 30 s, as do evaluations; all lengths are minutes. Every series is given twice,
as by a pair of exporters for high availability, unless the scenario says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

PER_MINUTE = 2
PREFIX = "table_queue_"
STILL = 240  # minutes; no scenario but the day is longer

# Which labels a metric has besides those of its target; what is in none of these has a queue only.
TYPED = frozenset(
    {
        "tasks",
        "recently_failed_tasks",
        "oldest_task_age_seconds",
        "oldest_ready_age_seconds",
        "oldest_processing_age_seconds",
        "oldest_expired_age_seconds",
        "retrying_tasks",
        "attempts_max",
        "count_limited",
        "enqueued_total",
        "finished_total",
        "attempts_total",
        "retries_total",
        "lease_reclaims_total",
        "processing_seconds_bucket",
        "processing_seconds_count",
    }
)
OF_TABLE = frozenset(
    ["dead_rows", "live_rows", "last_autovacuum_timestamp_seconds", "rows_deleted_total"]
)
OF_DATABASE = frozenset(
    ["database_up", "xmin_horizon_age_transactions", "xmin_horizon_age_seconds"]
)
OF_EXPORTER = "exporter_"

Series = dict[str, str]


def samples(minutes: float) -> int:
    """Return how many samples fill so many minutes."""
    count = minutes * PER_MINUTE
    if count != int(count) or count < 1:
        raise ValueError(f"{minutes} minutes are not a number of samples")
    return int(count)


def flat(value: float, minutes: float) -> str:
    """Return a value that stays."""
    return f"{value:g}x{samples(minutes) - 1}"


def grow(start: float, per_minute: float, minutes: float) -> str:
    """Return a value that changes evenly."""
    step = per_minute / PER_MINUTE
    return f"{start:g}{step:+.10g}x{samples(minutes) - 1}"


def gone(minutes: float) -> str:
    """Return a series that has ended, as Prometheus marks it."""
    return "stale" if samples(minutes) == 1 else f"stale _x{samples(minutes) - 1}"


def line(*parts: str) -> str:
    """Return one part after the other."""
    return " ".join(parts)


@dataclass(frozen=True)
class Queue:
    """A queue and the exporter that watches it."""

    queue: str = "payment"
    database: str = "main"
    cluster: str = "eu"
    namespace: str = "mon"
    job: str = "tqx"
    instance: str = "a"
    task_type: str = "t"
    table: str = "public.payment"

    def __call__(self, metric: str, values: str, **labels: str) -> Series:
        """Return one series of this queue, its table, its database or its exporter."""
        own = {**self.job_labels(), "instance": self.instance}
        if not metric.startswith(OF_EXPORTER):
            own["database"] = self.database
        if metric in OF_TABLE:
            own["table"] = self.table
        elif metric not in OF_DATABASE and not metric.startswith(OF_EXPORTER):
            own["queue"] = self.queue
        if metric in TYPED and self.task_type:
            own["task_type"] = self.task_type
        return {written(PREFIX + metric, own | labels): values}

    def info(self, minutes: float) -> Series:
        """Return the series that joins the queue to its table."""
        return self("info", flat(1, minutes), table=self.table, preset="lease")

    def target(self, values: str) -> Series:
        """Return Prometheus's own series of the exporter's target."""
        return {written("up", {**self.job_labels(), "instance": self.instance}): values}

    def job_labels(self) -> dict[str, str]:
        """Return the labels of an alert on the whole exporter."""
        labels = {"cluster": self.cluster, "namespace": self.namespace, "job": self.job}
        return {name: value for name, value in labels.items() if value}

    def database_labels(self, **more: str) -> dict[str, str]:
        """Return the labels of an alert on the database."""
        return {**self.job_labels(), "database": self.database, **more}

    def labels(self, **more: str) -> dict[str, str]:
        """Return the labels of an alert on the queue."""
        return {**self.database_labels(), "queue": self.queue, **more}

    def typed(self) -> dict[str, str]:
        """Return the labels of an alert on one task type."""
        return self.labels(task_type=self.task_type)

    def counters(
        self,
        done: str,
        failed: str | None = None,
        retries: str | None = None,
        cancelled: str | None = None,
    ) -> Series:
        """Return the series of ended attempts, the unused ones at zero as the exporter has them."""
        still = flat(0, STILL)
        return {
            **self("finished_total", done, outcome="done"),
            **self("finished_total", failed or still, outcome="failed"),
            **self("finished_total", cancelled or still, outcome="cancelled"),
            **self("retries_total", retries or still),
        }

    def tasks(self, **counts: str) -> Series:
        """Return the counts by status, the unused ones at zero as the exporter has them."""
        statuses = ("ready", "delayed", "blocked", "processing", "expired")
        series: Series = {}
        for status in statuses:
            series |= self("tasks", counts.get(status, flat(0, STILL)), status=status)
        return series


def written(name: str, labels: Mapping[str, str]) -> str:
    """Write a series as PromQL does."""
    inner = ",".join(f'{label}="{value}"' for label, value in labels.items())
    return f"{name}{{{inner}}}"


@dataclass(frozen=True)
class Check:
    """What an alert does at one time, or over all the time up to then."""

    alert: str
    minute: float
    expected: tuple[Mapping[str, str], ...] = ()
    throughout: bool = False
    texts: Mapping[str, str] | None = None


def silent(alert: str, until: float) -> Check:
    """Claim that an alert fires at no evaluation up to a minute; any alert, when named `*`."""
    return Check(alert, until, throughout=True)


def quiet(alert: str, at: float) -> Check:
    """Claim that an alert does not fire at a minute."""
    return Check(alert, at)


def fires(alert: str, at: float, *labels: Mapping[str, str]) -> Check:
    """Claim that an alert fires at a minute, for these and for no others."""
    return Check(alert, at, labels)


def shows(alert: str, at: float, labels: Mapping[str, str], **texts: str) -> Check:
    """Claim that one instance of an alert fires at a minute, and what its message says."""
    return Check(alert, at, (labels,), texts=texts)


@dataclass(frozen=True)
class Scenario:
    """A story about queues and what is to be made of it."""

    name: str
    series: tuple[Series, ...]
    checks: tuple[Check, ...]
    pair: bool = True
    merged: Series = field(init=False)

    def __post_init__(self) -> None:
        merged: Series = {}
        for part in self.series:
            if overlap := merged.keys() & part.keys():
                raise ValueError(f"{self.name}: given twice: {sorted(overlap)}")
            merged |= part
        if self.pair:
            second = {
                name.replace('instance="a"', 'instance="b"'): values
                for name, values in merged.items()
            }
            merged |= second
        object.__setattr__(self, "merged", merged)

    @property
    def alerts(self) -> frozenset[str]:
        """The alerts that the scenario speaks about."""
        return frozenset(check.alert for check in self.checks)


def scenario(name: str, *parts: Series | Check, pair: bool = True) -> Scenario:
    """Tell a scenario: its series and its checks in any order."""
    series = tuple(part for part in parts if isinstance(part, dict))
    checks = tuple(part for part in parts if isinstance(part, Check))
    return Scenario(name, series, checks, pair)


# The dashboard of the queue that most scenarios are about.
DASHBOARD = (
    "https://grafana.example.com/d/table-queue-depth?var-database=main&var-queue=payment"
    "&var-cluster=eu&var-namespace=mon&var-job=tqx"
)
