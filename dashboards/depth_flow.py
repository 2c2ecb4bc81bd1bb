"""In depth: where the tasks are, how they flow, how long they take."""

from __future__ import annotations

from grafana_foundation_sdk.builders import heatmap, timeseries

from alerts.thresholds import Levels
from dashboards.panels import (
    BLUE,
    COUNT,
    GREEN,
    ORANGE,
    PER_SECOND,
    RED,
    SECONDS,
    SHARE,
    YELLOW,
    Frame,
    Query,
    Text,
    coloured,
    limit_line,
    over_time,
    spread,
    static_lines,
)
from dashboards.promql import DEPTH, failing_share
from table_queue_exporter import metrics
from table_queue_exporter.metrics import Metric

OBJECTIVE = Query(DEPTH.largest(metrics.OBJECTIVE_SECONDS, by="queue"), "objective")
LEASE = Query(DEPTH.largest(metrics.LEASE_SECONDS, by="queue"), "lease")
UNREAD = "The queue cannot be read"


def _counts() -> timeseries.Panel:
    frame = Frame(
        "Tasks by status",
        Text(
            "Live tasks: ready (due now), delayed (due later), blocked (held back), processing "
            "(claimed) and expired (claimed, and the lease ran out).",
            "`ready` that grows: more arrives than is worked off. `processing` and `expired` that "
            "grow while `ready` stands still: workers take tasks and do not return. A gap: the "
            "queue could not be read.",
            "compare with the flow below; look at the workers' processes and at what they call.",
        ),
        COUNT,
        UNREAD,
    )
    panel = over_time(
        frame, Query(DEPTH.total(metrics.TASKS, by="status"), "{{status}}"), stacked=True
    )
    return coloured(
        panel, ready=BLUE, delayed="purple", blocked="text", processing=GREEN, expired=RED
    )


def _ages() -> timeseries.Panel:
    frame = Frame(
        "Oldest task, by what it waits for",
        Text(
            "How late the longest-overdue task is, how long the oldest attempt has been running "
            "and how long the oldest expired lease has been left. 0 when there is none.",
            "`late` above the objective; `running` above the lease: its task is taken by another "
            "worker while the first still works; `expired` that climbs: nobody is left to take "
            "it again.",
            "late: add workers or mend what they call. Running: find the stuck worker. Expired: "
            "restart the workers.",
        ),
        SECONDS,
        UNREAD,
    )
    panel = over_time(
        frame,
        Query(DEPTH.largest(metrics.OLDEST_READY_AGE, by="queue"), "late"),
        Query(DEPTH.largest(metrics.OLDEST_PROCESSING_AGE, by="queue"), "running"),
        Query(DEPTH.largest(metrics.OLDEST_EXPIRED_AGE, by="queue"), "expired"),
        OBJECTIVE,
        LEASE,
    )
    coloured(panel, late=BLUE, running=GREEN, expired=ORANGE)
    return limit_line(limit_line(panel, "objective"), "lease")


def _by_type(title: str, metric: Metric, unit: str, text: Text, *more: Query) -> timeseries.Panel:
    expr = (
        DEPTH.largest(metric, by="task_type")
        if unit == SECONDS
        else DEPTH.total(metric, by="task_type")
    )
    panel = over_time(Frame(title, text, unit, UNREAD), Query(expr, "{{task_type}}"), *more)
    return limit_line(panel, more[0].legend) if more else panel


def _late_types() -> timeseries.Panel:
    return _by_type(
        "Lateness by task type",
        metrics.OLDEST_READY_AGE,
        SECONDS,
        Text(
            "How long the longest-overdue task of each type has been due.",
            "one type far above the others: its tasks starve behind those that are claimed first, "
            "or its workers are gone. All together: the queue as a whole is behind.",
            "give the starving type workers of its own, or claim in order of due time.",
        ),
        OBJECTIVE,
    )


def _failed_types() -> timeseries.Panel:
    return _by_type(
        "Failed in the last hour, by task type",
        metrics.RECENTLY_FAILED_TASKS,
        COUNT,
        Text(
            "Tasks given up for good within `failed_window` (an hour unless configured otherwise).",
            "anything above what is tolerated. One type: its logic or its neighbour. All: the "
            "database, the network or a release.",
            "read `last_error` of the newest failed tasks of that type, mend, enqueue them again.",
        ),
        Query(DEPTH.largest(metrics.FAILED_TOLERATED, by="queue"), "tolerated"),
    )


def _flow() -> timeseries.Panel:
    frame = Frame(
        "Arrivals and finishes",
        Text(
            "Tasks enqueued, and tasks that reached an end, per second.",
            "`enqueued` above `done` for long: the backlog grows. `done` at 0 while tasks are "
            "ready: nobody works. `enqueued` at 0 where something should come: ask the producer.",
            "add workers only if what they call has room; otherwise slow the producer.",
        ),
        PER_SECOND,
        "Neither arrivals nor finishes can be counted",
    )
    panel = over_time(
        frame,
        Query(DEPTH.rate(metrics.ENQUEUED, by="queue"), "enqueued"),
        Query(DEPTH.rate(metrics.FINISHED, by="outcome"), "{{outcome}}"),
    )
    return coloured(panel, enqueued=BLUE, done=GREEN, failed=RED, cancelled="text")


def _failures() -> timeseries.Panel:
    frame = Frame(
        "Failures and retries",
        Text(
            "Tasks given up, attempts begun after a failure or a release, and attempts that took "
            "over an expired lease, per second.",
            "`retried` near the pace of finishes: most work fails at first. A burst of `retried` "
            "in one second: retries without jitter. `reclaimed` above 0 for long: workers die, or "
            "the lease is shorter than the work.",
            "see below which task type fails; for reclaims see the row on leases.",
        ),
        PER_SECOND,
        "Attempts cannot be counted",
    )
    panel = over_time(
        frame,
        Query(DEPTH.rate(metrics.FINISHED, 'outcome="failed"', by="queue"), "failed"),
        Query(DEPTH.rate(metrics.RETRIES, by="queue"), "retried"),
        Query(DEPTH.rate(metrics.LEASE_RECLAIMS, by="queue"), "reclaimed"),
    )
    return coloured(panel, failed=RED, retried=YELLOW, reclaimed=ORANGE)


def _finished_types() -> timeseries.Panel:
    frame = Frame(
        "Done, by task type",
        Text(
            "Tasks that finished well, per second.",
            "a type that falls to 0 while its tasks are ready: its work hangs, or is claimed last.",
            "compare with lateness and processing time of the same type.",
        ),
        PER_SECOND,
        "Finished tasks cannot be counted",
    )
    done = DEPTH.rate(metrics.FINISHED, 'outcome="done"', by="task_type")
    return over_time(frame, Query(done, "{{task_type}}"))


def _failing_types() -> timeseries.Panel:
    frame = Frame(
        "Share of attempts failing, by task type",
        Text(
            "Of the attempts that ended, the share that failed or was given back.",
            f"above the line ({Levels().failing_share:.0%}) for a quarter of an hour it "
            "pages. A type without attempts has "
            "no line.",
            "one type: mend it or stop it. All types: what do they share?",
        ),
        SHARE,
        "No attempt ended",
    )
    panel = over_time(frame, Query(failing_share(DEPTH, by="task_type"), "{{task_type}}"))
    return static_lines(panel.min(0).max(1), GREEN, (Levels().failing_share, RED))


def _heat(title: str, metric: Metric, text: Text) -> heatmap.Panel:
    frame = Frame(title, text, SECONDS, "No task finished")
    return spread(frame, DEPTH.increase(metric, by="le", suffix="_bucket"))


def _quantiles(title: str, metric: Metric, text: Text, limit: Query) -> timeseries.Panel:
    queries = [
        Query(DEPTH.quantile(share, metric), f"p{share * 100:.0f} {{{{task_type}}}}")
        for share in (0.5, 0.9, 0.99)
    ]
    # Idle means NaN, which Grafana leaves out.
    return limit_line(
        over_time(Frame(title, text, SECONDS, "No task finished"), *queries, limit), limit.legend
    )


_WAIT = Text(
    "How long tasks were due before their final attempt began; each cell counts tasks.",
    "the dark band moves up: everything waits longer. A second band far above the first: some "
    "tasks wait for retries, or starve.",
    "compare with arrivals; a band at the back-off's length is retries, not a lack of workers.",
)
_WAIT_QUANTILES = Text(
    "Due to start of the final attempt: half, nine in ten and 99 in a hundred tasks were faster.",
    "p99 above the objective: some tasks are late; p50 above it: most are.",
    "p99 alone: look at single slow types. All three: add workers, or make the work faster.",
)
_WORK = Text(
    "Start to finish of the final attempt; each cell counts tasks.",
    "a band that moves up: what the tasks call became slow. A band at one fixed value: a time-out.",
    "look at the service behind that task type; set time-outs below the lease.",
)
_WORK_QUANTILES = Text(
    "Start to finish of the final attempt: half, nine in ten and 99 in a hundred were faster.",
    "p99 near the lease: soon two workers do the same task. No figure: nothing finished.",
    "see the advice on leases below.",
)


def where() -> list[timeseries.Panel]:
    """Return the panels on where the tasks are."""
    return [_counts(), _ages(), _late_types(), _failed_types()]


def flow() -> list[timeseries.Panel]:
    """Return the panels on what comes and goes."""
    return [_flow(), _failures(), _finished_types(), _failing_types()]


def times() -> list[timeseries.Panel | heatmap.Panel]:
    """Return the panels on waiting and processing time."""
    return [
        _heat("Waiting time", metrics.WAIT_SECONDS, _WAIT),
        _heat("Processing time", metrics.PROCESSING_SECONDS, _WORK),
        _quantiles("Waiting time, by task type", metrics.WAIT_SECONDS, _WAIT_QUANTILES, OBJECTIVE),
        _quantiles(
            "Processing time, by task type", metrics.PROCESSING_SECONDS, _WORK_QUANTILES, LEASE
        ),
    ]
