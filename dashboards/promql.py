"""PromQL of the dashboards: which series, and how replicas and task types are put together.

Expressions are built from `metrics.Metric`, so that no name or label is written twice. They read
the exporter's own series and no recording rule: the dashboards work without the alert bundle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from alerts.model import JOB, QUEUE
from table_queue_exporter import metrics
from table_queue_exporter.metrics import Metric

RATE = "$__rate_interval"
RANGE = "$__range"

OF_JOB = tuple(f'{label}=~"${label}"' for label in JOB.split(", "))
TYPED = 'task_type=~"$task_type"'


@dataclass(frozen=True)
class Scope:
    """The series that a dashboard's variables choose.

    A variable of one value is compared (Grafana leaves its value as it is); one of several is
    matched (Grafana escapes what a regular expression would read otherwise).
    """

    database: str
    queue: str

    def series(self, metric: Metric, *matchers: str, suffix: str = "") -> str:
        """Return the selector of a metric, narrowed by every variable whose label it has."""
        chosen = {"database": self.database, "queue": self.queue, "task_type": TYPED}
        own = [chosen[label] for label in metric.labels if label in chosen]
        return f"{metric.name}{suffix}{{{','.join([*OF_JOB, *own, *matchers])}}}"

    def largest(self, metric: Metric, *matchers: str, by: str = QUEUE) -> str:
        """Return the largest value over replicas and whatever `by` leaves out."""
        return f"max by ({by}) ({self.series(metric, *matchers)})"

    def total(self, metric: Metric, *matchers: str, by: str = QUEUE) -> str:
        """Return a sum over task types of what is the largest over replicas."""
        return _summed(by, metric, self.series(metric, *matchers))

    def rate(self, metric: Metric, *matchers: str, by: str = QUEUE) -> str:
        """Return a counter's pace per second."""
        return _summed(by, metric, f"rate({self.series(metric, *matchers)}[{RATE}])")

    def increase(
        self, metric: Metric, *matchers: str, by: str = QUEUE, window: str = RATE, suffix: str = ""
    ) -> str:
        """Return by how much a counter grew within a window."""
        extra = ("le",) if suffix == "_bucket" else ()
        inner = f"increase({self.series(metric, *matchers, suffix=suffix)}[{window}])"
        return _summed(by, metric, inner, extra)

    def quantile(
        self,
        share: float,
        metric: Metric,
        *matchers: str,
        by: str = "task_type",
        window: str = RATE,
    ) -> str:
        """Return a quantile of a histogram over summed buckets."""
        by_le = f"{by}, le" if by else "le"
        buckets = self.increase(metric, *matchers, by=by_le, window=window, suffix="_bucket")
        return f"histogram_quantile({share:g}, {buckets})"

    def firing(self, *matchers: str) -> str:
        """Return the firing alerts of the bundle, those without a queue or a database included."""
        names = [matcher.split("=")[0] for matcher in (*OF_JOB, self.database, self.queue)]
        own = [f'{name}=~"${{{name}:regex}}|"' for name in names[len(OF_JOB) :]]
        mine = [f'{name}=~"${name}|"' for name in names[: len(OF_JOB)]]
        what = ['alertname=~"TableQueue.*"', 'alertstate="firing"', *matchers]
        return f"ALERTS{{{','.join([*what, *mine, *own])}}}"

    def of_table(self, expr: str, by: str) -> str:
        """Keep the tables that a queue lies in; their metrics have no `queue`."""
        return f"{expr}\n  and on ({by}) {self.largest(metrics.INFO, by=by)}"


ONCALL = Scope('database=~"$database"', 'queue=~"$queue"')
DEPTH = Scope('database="$database"', 'queue="$queue"')


def _summed(by: str, metric: Metric, inner: str, extra: Sequence[str] = ()) -> str:
    labels = ", ".join([*JOB.split(", "), *metric.labels, *extra])
    outer = f"sum by ({by})" if by else "sum"
    return f"{outer} (max by ({labels}) ({inner}))"


def greatest(*exprs: str, by: str) -> str:
    """Return the largest of several figures for each value of `by`; what is NaN does not count."""
    marked = [
        f'label_replace({expr}, "figure", "{number}", "", "")'
        for number, expr in enumerate(exprs, start=1)
    ]
    return f"max by ({by}) (\n  {f'{chr(10)}  or '.join(marked)}\n)"


def failing_share(scope: Scope, by: str = QUEUE) -> str:
    """Return the share of ended attempts that failed or were given back; nothing while idle.

    Retries stand for failed attempts that were not the last. A queue whose library counts no
    attempts is judged by the tasks that failed for good.
    """
    failed = scope.rate(metrics.FINISHED, 'outcome="failed"', by=by)
    retried = scope.rate(metrics.RETRIES, by=by)
    done = scope.rate(metrics.FINISHED, 'outcome="done"', by=by)
    bad = f"({failed} + {retried} or {failed})"
    return f"{bad}\n  / ({bad} + {done} > 0)"
