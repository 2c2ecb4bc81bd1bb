"""A report as text for people, and as JSON for machines."""

import json
import textwrap
from collections.abc import Iterable
from dataclasses import asdict
from enum import StrEnum

from .findings import Finding, QueueReport, Report, Severity, StatementCost, format_bytes

_WIDTH = 100
_INDENT = " " * 10


class ReportFormat(StrEnum):
    """Values of --format."""

    TABLE = "table"
    JSON = "json"


def render(report: Report, form: ReportFormat) -> str:
    """The whole report, ending in a line break."""
    return _json(report) if form is ReportFormat.JSON else _text(report)


def _json(report: Report) -> str:
    data = {
        "healthy": report.healthy,
        "findings": [asdict(finding) for finding in report.findings],
        "queues": [asdict(queue) for queue in report.queues],
    }
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def _text(report: Report) -> str:
    lines: list[str] = []
    for database in dict.fromkeys(finding.database for finding in report.findings):
        mine = [f for f in report.findings if f.database == database and f.queue is None]
        if mine:
            lines += [f"Database {database}", *_findings(mine), ""]
    for queue in report.queues:
        title = f"Queue {queue.queue} ({queue.table}) of {queue.database}"
        lines += [_printable(title), *_queue(queue)]
        lines += _findings(
            f for f in report.findings if (f.database, f.queue) == (queue.database, queue.queue)
        )
        lines.append("")
    return "\n".join([*lines, _summary(report)]) + "\n"


def _summary(report: Report) -> str:
    counts = {
        severity: sum(finding.severity is severity for finding in report.findings)
        for severity in Severity
    }
    said = [f"{count} {severity}{'' if count == 1 else 's'}" for severity, count in counts.items()]
    return ", ".join(said) + "."


def _queue(queue: QueueReport) -> list[str]:
    if not queue.measurements:
        return []
    measured = [m.metric.removeprefix("table_queue_") for m in queue.measurements if m.measured]
    lines = _wrapped(f"measured: {', '.join(measured)}")
    reasons: dict[str, list[str]] = {}
    for measurement in queue.measurements:
        if not measurement.measured:
            name = measurement.metric.removeprefix("table_queue_")
            reasons.setdefault(measurement.reason, []).append(name)
    for reason, names in reasons.items():
        lines += _wrapped(f"not measured: {', '.join(names)}: {reason}")
    return lines + _statements(queue.statements)


def _statements(costs: tuple[StatementCost, ...]) -> list[str]:
    rows = [("statement", "pages", "ms", "read whole")]
    for cost in costs:
        if cost.pages is None or cost.milliseconds is None:
            rows.append((cost.name, "-", "-", "does not end"))
        else:
            scanned = format_bytes(cost.scanned_bytes) if cost.scanned else ""
            rows.append((cost.name, str(cost.pages), f"{cost.milliseconds:.1f}", scanned))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return [
        f"  {name:<{widths[0]}}  {pages:>{widths[1]}}  {time:>{widths[2]}}  {scanned}".rstrip()
        for name, pages, time, scanned in rows
    ]


def _findings(findings: Iterable[Finding]) -> list[str]:
    order = list(Severity)
    lines = []
    for finding in sorted(findings, key=lambda finding: order.index(finding.severity)):
        lines += _wrapped(f"{finding.severity:<7} {_printable(finding.what)}")
        lines += _wrapped(_printable(finding.why), _INDENT)
        lines += [f"{_INDENT}{line}" for line in map(_printable, finding.advice)]
        lines += [f"{_INDENT}{_printable(statement)};" for statement in finding.sql]
    return lines


def _wrapped(text: str, first: str = "  ") -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=first,
        subsequent_indent=_INDENT,
        break_on_hyphens=False,
        break_long_words=False,
    )


def _printable(text: str) -> str:
    """Control characters, escaped: names come from the database, and this is a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
