"""How many label values a queue has, against their caps, and rows stamped in the future."""

from ..access import Access, Select
from ..reading import group_of, number
from ..statements import QueueStatements
from .findings import Finding, Severity
from .subject import Subject

_NEARLY = 0.8
_CLOCK_AHEAD = 1.0
"""Seconds that a row may be stamped ahead of the server's clock: what rounding and NTP leave."""


async def label_findings(subject: Subject, statements: QueueStatements) -> list[Finding]:
    """Reads the live tasks' ages once and counts their groups. Raises PollError."""
    model, config = subject.model, subject.config
    results = await subject.connection.run(statements.ages, subject.session)
    has_queue, has_type = model.get("queue") is not None, model.get("task_type") is not None
    types: dict[str | None, set[str | None]] = {}
    for rows in results:
        for row in rows:
            queue, task_type = group_of(row, has_queue=has_queue, has_type=has_type)
            types.setdefault(queue, set()).add(task_type)
    found = []
    if has_queue:
        found += _judged(subject, "queues", len(types), config.max_queues, "max_queues")
    most = max((len(names - {None}) for names in types.values()), default=0)
    if has_type:
        found += _judged(subject, "task types", most, config.max_task_types, "max_task_types")
    return found


def _judged(subject: Subject, what: str, count: int, cap: int, key: str) -> list[Finding]:
    if count <= _NEARLY * cap:
        return []
    beyond = count > cap
    return [
        subject.finding(
            Severity.WARNING if beyond else Severity.NOTE,
            "labels",
            f"{count} {what} among live tasks, and {key} is {cap}",
            "those that come last stand together under the label _other; each value is a set of "
            "series, so a name per customer or per task does not belong here",
            advice=[f"in the configuration: {key}: {count * 2}"],
        )
    ]


async def future_findings(subject: Subject) -> list[Finding]:
    """The newest task's time against the server's clock. Raises PollError."""
    if Access.NEWEST_ENQUEUED not in subject.shape.accesses or subject.model.get("queue"):
        return []
    enqueued, table = subject.model["enqueued_at"], subject.model.table.sql
    sql = (
        f"SELECT extract(epoch FROM enqueued - clock_timestamp())::float8 AS ahead FROM (\n"
        f"  SELECT {enqueued}::timestamptz AS enqueued FROM {table}\n"
        f"  WHERE {enqueued} IS NOT NULL ORDER BY {enqueued} DESC LIMIT 1\n"
        f") newest WHERE isfinite(enqueued)"
    )
    (rows,) = await subject.connection.run([Select("newest", sql)], subject.session)
    ahead = number(rows[0]["ahead"]) if rows else 0
    if ahead <= _CLOCK_AHEAD:
        return []
    return [
        subject.finding(
            Severity.WARNING,
            "future",
            f"the newest task was enqueued {ahead:.0f} s in the future",
            "another clock than the server's stamps the rows, or times are read in the wrong zone: "
            "their ages are too small, and late stamps are counted only with a lookback",
            advice=[
                "worker: stamp rows with the server's now(), or mend the clock",
                "in the configuration: lookback: 30s, and timezone where the column has no zone",
            ],
        )
    ]
