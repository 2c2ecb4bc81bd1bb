"""In depth: leases, what to set them to, attempts and poison tasks."""

from __future__ import annotations

from grafana_foundation_sdk.builders import table, timeseries

from alerts.thresholds import Levels
from dashboards.panels import (
    COUNT,
    ORANGE,
    RED,
    SECONDS,
    SHARE,
    YELLOW,
    Column,
    Frame,
    Query,
    Text,
    coloured,
    limit_line,
    over_time,
    rows,
    static_lines,
)
from dashboards.promql import DEPTH, RANGE, greatest
from table_queue_exporter import metrics

_LEVELS = Levels()
P99_SHARE = 0.5
"""The share of a lease that one attempt in a hundred may take."""
LONGEST_SHARE = 0.8
"""The share of a lease that the longest attempt may take."""
STEP = 5
"""Suggested leases are multiples of this many seconds."""


def _expired() -> timeseries.Panel:
    frame = Frame(
        "Expired leases and reclaims",
        Text(
            "`expired`: tasks whose lease ran out and that nobody has taken again, as of the last "
            "poll. `reclaimed`: attempts that took over an expired lease, within the rate window.",
            "`reclaimed` again and again: workers die, or the lease is shorter than the work; then "
            "work is done twice. `expired` that stays: no worker is left to take them. One burst "
            "after a crash is normal.",
            "workers that die: their logs, their memory limit. Otherwise the advice beside.",
        ),
        COUNT,
        "The queue has no leases, or cannot be read",
    )
    panel = over_time(
        frame,
        Query(DEPTH.total(metrics.TASKS, 'status="expired"', by="queue"), "expired"),
        Query(DEPTH.increase(metrics.LEASE_RECLAIMS, by="task_type"), "reclaimed {{task_type}}"),
    )
    return coloured(panel, expired=ORANGE)


_P99 = DEPTH.quantile(0.99, metrics.PROCESSING_SECONDS, window=RANGE)
_LONGEST_FINISHED = DEPTH.quantile(1, metrics.PROCESSING_SECONDS, window=RANGE)
_LONGEST_RUNNING = (
    f"max by (task_type) (max_over_time({DEPTH.series(metrics.OLDEST_PROCESSING_AGE)}[{RANGE}]))"
)
_LEASE = f"on () group_left () max({DEPTH.series(metrics.LEASE_SECONDS)})"
_P99_OF_LEASE = f"{_P99}\n  / {_LEASE}"


def _advice() -> table.Panel:
    frame = Frame(
        "Lease and batch advice",
        Text(
            "Over the dashboard's time range, by task type. **Suggested lease**: p99 should take "
            f"at most {P99_SHARE:.0%} of it and the longest attempt at most {LONGEST_SHARE:.0%}: "
            "then a slow database or a paused process costs no second attempt; rounded up "
            f"to {STEP} s. A longer lease costs time: so long a dead worker's tasks wait. The "
            "queue has one lease: take the largest. **Suggested batch**: the lease runs from the "
            "claim, and tasks of a batch wait for each other; this many fit one after the other "
            "into half of the present lease even at p99. Multiply by the number of tasks that a "
            "worker does at once. `longest` is the upper edge of the histogram's bucket, or the "
            "oldest attempt seen running.",
            "`p99 ÷ lease` from 0.5 (yellow) or 0.8 (red: an alert); `longest` above `lease`: that "
            "task was done twice. A `longest` far above p99 may be a dead worker's last task, "
            "whose age runs on until it is reclaimed.",
            "raise the lease to the largest suggestion or cut the work's time-out; make batches "
            "no larger than suggested. Choose a time range with a busy hour in it; fewer than a "
            "hundred tasks are no measure.",
        ),
        SECONDS,
        "–",
    )
    finished = DEPTH.increase(
        metrics.PROCESSING_SECONDS, by="task_type", window=RANGE, suffix="_count"
    )
    longest = greatest(_LONGEST_FINISHED, _LONGEST_RUNNING, by="task_type")
    needed = greatest(
        f"{_P99} / {P99_SHARE}",
        f"{_LONGEST_FINISHED} / {LONGEST_SHARE}",
        f"{_LONGEST_RUNNING} / {LONGEST_SHARE}",
        by="task_type",
    )
    return rows(
        frame,
        Column("finished", finished, decimals=0),
        Column("p99", f"{_P99} >= 0", SECONDS),
        Column("longest", f"{longest} >= 0", SECONDS),
        Column("lease", f"0 * {finished}\n  + {_LEASE}", SECONDS),
        Column(
            "p99 ÷ lease",
            f"{_P99_OF_LEASE} >= 0",
            SHARE,
            colours=((P99_SHARE, YELLOW), (_LEVELS.lease_share, RED)),
            decimals=0,
        ),
        Column("suggested lease", f"ceil({needed} / {STEP}) * {STEP} > 0", SECONDS),
        Column(
            "suggested batch",
            f"clamp_min(floor({P99_SHARE} / ({_P99_OF_LEASE} > 0)), 1)",
            decimals=0,
        ),
        labels=("task_type",),
        worst=(("p99 ÷ lease", True), ("longest", True)),
    )


def _attempts() -> timeseries.Panel:
    frame = Frame(
        "Most attempts of a live task",
        Text(
            "The highest count of attempts among the tasks that are not finished, by task type; "
            "the line is the limit from the configuration.",
            "a single type that climbs to the limit, or beyond it, while the others stay at 1: a "
            "poison task. Beyond the limit it kills its workers: only an expired lease brings it "
            "back, so it never fails.",
            "find it by its attempts, read its error, set it to failed by hand.",
        ),
        COUNT,
        "The queue counts no attempts, or cannot be read",
    )
    panel = over_time(
        frame,
        Query(DEPTH.largest(metrics.ATTEMPTS_MAX, by="task_type"), "{{task_type}}"),
        Query(DEPTH.largest(metrics.ATTEMPTS_LIMIT, by="queue"), "limit"),
    )
    static_lines(panel, "green", (_LEVELS.poison_attempts, ORANGE))
    return limit_line(panel, "limit")


def _retrying() -> timeseries.Panel:
    frame = Frame(
        "Waiting tasks that were attempted before",
        Text(
            "Tasks that wait for another attempt, by task type.",
            "most of `ready` and `delayed` together: a retry storm, which delays the new tasks "
            "too. A few that never go away: poison tasks.",
            "storm: mend the neighbour and let the back-off do its work; do not restart workers.",
        ),
        COUNT,
        "The queue counts no attempts, or cannot be read",
    )
    retrying = DEPTH.total(metrics.RETRYING_TASKS, by="task_type")
    return over_time(frame, Query(retrying, "{{task_type}}"), stacked=True)


def _begun() -> timeseries.Panel:
    frame = Frame(
        "Attempts begun, by reason",
        Text(
            "First attempts, attempts after a failure or a release, and attempts that took over "
            "an expired lease, within the rate window.",
            "first attempts that fall while the others rise: capacity goes into repeating.",
            "stop or mend the type that repeats; see the two panels above.",
        ),
        COUNT,
        "Attempts cannot be counted",
        width=24,
    )
    begun = DEPTH.increase(metrics.ATTEMPTS, by="queue")
    retried = DEPTH.increase(metrics.RETRIES, by="queue")
    reclaimed = DEPTH.increase(metrics.LEASE_RECLAIMS, by="queue")
    repeated = f"({retried} + {reclaimed} or {retried})"
    panel = over_time(
        frame,
        Query(f"clamp_min({begun}\n  - {repeated}, 0)", "first"),
        Query(retried, "after a failure"),
        Query(reclaimed, "after an expired lease"),
        stacked=True,
    )
    return coloured(
        panel, **{"first": "green", "after a failure": YELLOW, "after an expired lease": ORANGE}
    )


def leases() -> list[timeseries.Panel | table.Panel]:
    """Return the panels on leases."""
    return [_expired(), _advice()]


def attempts() -> list[timeseries.Panel]:
    """Return the panels on attempts and poison tasks."""
    return [_attempts(), _retrying(), _begun()]
