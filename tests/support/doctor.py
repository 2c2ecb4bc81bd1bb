"""The doctor's report on a database, and its prescriptions carried out."""

from table_queue_exporter.config import parse_config
from table_queue_exporter.doctor.diagnosis import diagnose
from table_queue_exporter.doctor.findings import Finding, Report, Severity

from .queues import PAYMENT, configuration, execute


async def examine(dsn: str, queue: str = PAYMENT, *, database: str = "") -> Report:
    """What the doctor says of one queue."""
    config = parse_config(configuration(dsn, queue, database=database), environment={})
    return await diagnose(config)


def complaints(report: Report) -> dict[str, list[Finding]]:
    """Findings that are more than notes, by their kind."""
    found: dict[str, list[Finding]] = {}
    for finding in report.findings:
        if finding.severity is not Severity.NOTE:
            found.setdefault(finding.check, []).append(finding)
    return found


def statements(report: Report) -> list[str]:
    """Every SQL statement of a report, in order."""
    return [statement for finding in report.findings for statement in finding.sql]


def pages(report: Report) -> dict[str, int]:
    """Pages by statement."""
    (queue,) = report.queues
    return {cost.name: cost.pages or 0 for cost in queue.statements}


def measured(report: Report) -> set[str]:
    """The metrics that can be measured."""
    (queue,) = report.queues
    return {m.metric.removeprefix("table_queue_") for m in queue.measurements if m.measured}


async def cure(
    dsn: str, queue: str = PAYMENT, *, owner: str | None = None
) -> tuple[Report, list[str]]:
    """Does what the doctor says until it is content, and returns the last report and every
    statement that was run. ``owner`` is a DSN that may alter what ``dsn`` may only read."""
    run: list[str] = []
    for _ in range(6):
        report = await examine(dsn, queue)
        new = [statement for statement in statements(report) if statement not in run]
        if not new:
            return report, run
        for statement in new:
            execute(owner or dsn, statement)
        run += new
    raise AssertionError(f"the doctor is never content: {new}")
