"""The lease against the processing times seen, and the interval against the lease."""

import math
from dataclasses import dataclass

from ..access import Access, Select
from ..durations import format_duration
from ..errors import PollError
from ..reading import Row, number
from .findings import Finding, Severity
from .subject import Subject

SAMPLE = 1_000
"""Finished tasks, and claimed ones, that are looked at."""
_FEW = 20
"""Fewer finished tasks say nothing about a 99th percentile."""
_TOO_LONG = 60
"""A lease of this many p99s makes a dead worker's tasks wait without need."""
_LONG_WAIT = 600.0
_NICE = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 43200, 86400)


@dataclass(frozen=True)
class Times:
    """Processing times of recently finished tasks, in seconds."""

    tasks: int
    p50: float
    p99: float
    longest: float


async def lease_findings(subject: Subject) -> list[Finding]:
    """Bounded reads of the newest finished and of some claimed tasks."""
    times = await _times(subject)
    lease = subject.config.lease or await _lease(subject)
    return judge_lease(subject, times, lease)


def judge_lease(subject: Subject, times: Times | None, lease: float | None) -> list[Finding]:
    """What the figures say; nothing where there are none."""
    found = []
    interval = subject.config.interval
    if lease and lease < 2 * interval and subject.model.lease_until:
        better = max(math.floor(lease / 2), 1) if lease >= 2 else lease / 2
        found.append(
            subject.finding(
                Severity.WARNING,
                "interval",
                f"the interval of {_text(interval)} is long for a lease of {_text(lease)}",
                "a lease must be seen at least twice before it ends, or lease_reclaims_total "
                "misses those that are taken over in between",
                advice=[f"in the configuration: interval: {_text(better)}"],
            )
        )
    if times is not None:
        found += _against(subject, times, lease)
    return found


def _against(subject: Subject, times: Times, lease: float | None) -> list[Finding]:
    seen = (
        f"of {times.tasks} tasks half took {_text(times.p50)}, 99 % at most {_text(times.p99)}, "
        f"the longest {_text(times.longest)}"
    )
    suggested = suggested_lease(times)
    if lease is None:
        if "processing" not in subject.model.expressions:
            return []
        batch = suggested_batch(times, suggested)
        return [
            subject.finding(
                Severity.NOTE,
                "lease",
                f"the lease is not known; {seen}",
                f"a lease of {_text(suggested)} fits, with up to {batch} tasks a worker at once",
            )
        ]
    worker = f"worker: in the claim: now() + interval '{suggested:.0f} seconds'"
    configured = f"in the configuration: lease: {_text(suggested)}"
    if times.p99 > 0.8 * lease:
        batch = suggested_batch(times, suggested)
        return [
            subject.finding(
                Severity.WARNING,
                "lease",
                f"the lease of {_text(lease)} is shorter than the work: {seen}",
                "tasks are taken over while their first worker is still busy, and are done twice; "
                f"a lease of {_text(suggested)} fits, with up to {batch} tasks a worker at once",
                advice=[worker, configured],
            )
        ]
    batch = suggested_batch(times, lease)
    why = f"a worker may claim up to {batch} tasks at once and end them one after another in time"
    too_long = lease > _LONG_WAIT and lease > _TOO_LONG * times.p99 and suggested < lease
    if too_long:
        why = f"a dead worker's tasks wait that long; {_text(suggested)} would do"
    return [
        subject.finding(
            Severity.NOTE,
            "lease",
            f"the lease is {_text(lease)}; {seen}",
            why,
            advice=[worker, configured] if too_long else (),
        )
    ]


def suggested_lease(times: Times) -> float:
    """Three times what nearly every task needs, rounded up to a time that people write."""
    wanted = max(3 * times.p99, times.longest, 30.0)
    return next(
        (float(nice) for nice in _NICE if nice >= wanted), math.ceil(wanted / 86400) * 86400.0
    )


def suggested_batch(times: Times, lease: float) -> int:
    """Tasks that one worker can end one after another within half the lease."""
    return int(min(max(lease / 2 / max(times.p99, 0.001), 1), 1000))


def _text(seconds: float) -> str:
    """A duration of no more digits than it deserves."""
    return format_duration(round(seconds) if seconds >= 10 else round(seconds, 2))


async def _times(subject: Subject) -> Times | None:
    """None where an index does not give the newest, or too few tell anything."""
    model = subject.model
    started, finished = model.get("started_at"), model.get("finished_at")
    cheap = {Access.NEWEST_FINISHED, Access.FINISHED_BY_TIME} & subject.shape.accesses
    if started is None or finished is None or not cheap:
        return None
    sql = f"""
SELECT count(seconds) AS tasks, percentile_cont(0.5) WITHIN GROUP (ORDER BY seconds) AS p50,
  percentile_cont(0.99) WITHIN GROUP (ORDER BY seconds) AS p99, max(seconds) AS longest
FROM (
  SELECT CASE WHEN isfinite(started) AND isfinite(finished) AND finished >= started
    THEN extract(epoch FROM finished - started)::float8 END AS seconds
  FROM (
    SELECT {started}::timestamptz AS started, {finished}::timestamptz AS finished
    FROM {model.table.sql} WHERE {finished} IS NOT NULL ORDER BY {finished} DESC LIMIT {SAMPLE}
  ) sample
) durations"""
    row = await _row(subject, Select("times", sql.strip()))
    if row is None or number(row["tasks"]) < _FEW:
        return None
    return Times(
        int(number(row["tasks"])), number(row["p50"]), number(row["p99"]), number(row["longest"])
    )


async def _lease(subject: Subject) -> float | None:
    """The usual length of the leases of some claimed tasks, None where it cannot be told."""
    model = subject.model
    until, started, processing = (
        model.get(name) for name in ("lease_until", "started_at", "processing")
    )
    if until is None or started is None or processing is None:
        return None
    ordered = f" ORDER BY {until}" if Access.PROCESSING_BY_LEASE in subject.shape.accesses else ""
    sql = f"""
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY seconds) AS lease
FROM (
  SELECT CASE WHEN isfinite(started) AND isfinite(until) AND until > started
    THEN extract(epoch FROM until - started)::float8 END AS seconds
  FROM (
    SELECT {started}::timestamptz AS started, {until}::timestamptz AS until
    FROM {model.table.sql} WHERE {processing}{ordered} LIMIT {SAMPLE}
  ) sample
) leases"""
    row = await _row(subject, Select("lease", sql.strip()))
    return None if row is None or row["lease"] is None else number(row["lease"])


async def _row(subject: Subject, select: Select) -> Row | None:
    """The one row, or None where it cannot be read in time: what is only nice to know."""
    try:
        (rows,) = await subject.connection.run([select], subject.session)
    except PollError:
        if not subject.connection.connected:
            raise
        return None
    return rows[0]
