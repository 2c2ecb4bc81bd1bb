"""Runs every check on every queue. Reads only, one statement after another."""

from dataclasses import replace

from ..config import Config, DatabaseConfig, QueueConfig
from ..discovery import discover
from ..errors import ConfigError, PollError, Problem, Reason
from ..model import QueueModel
from ..postgres import Connection, Session
from ..queue_reader import QueueReader
from ..store import new_queue_state
from .catalog import other_schemas, read_catalog
from .findings import Finding, QueueReport, Report, Severity
from .indexes import index_findings, missing_indexes
from .labels import future_findings, label_findings
from .leases import lease_findings
from .measurable import column_findings, measurements
from .plans import costs, plan_findings
from .privileges import privilege_findings, row_security_findings
from .server import read_server, server_findings
from .subject import Subject
from .vacuum import horizon_findings, vacuum_findings


async def diagnose(config: Config, queue: str | None = None, *, search: bool = False) -> Report:
    """Everything that is to say of a configuration's queues, or of one of them.

    With ``search``, the queues are those of known kinds that the databases hold. Raises
    ConfigError for a queue that is not there.
    """
    queues: list[QueueReport] = []
    findings: list[Finding] = []
    seen: list[str] = []
    for name, database in config.databases.items():
        connection = Connection(database)
        try:
            await connection.connect()
            known = (
                tuple(await discover(connection, name, Session.of(database)))
                if search
                else config.queues_of(name)
            )
            seen += [settings.name for settings in known]
            wanted = [settings for settings in known if queue in (None, settings.name)]
            findings += await _database(connection, name, database)
            if search and not known:
                findings.append(_nothing_found(name))
            for settings in wanted:
                report, found = await _queue(connection, database, settings)
                queues.append(report)
                findings += found
        except PollError as error:
            findings.append(_unreachable(name, error))
        finally:
            await connection.close()
    if queue is not None and queue not in seen and not _failed(findings):
        known_names = ", ".join(seen) or "none"
        message = f"no queue {queue!r}; known: {known_names}"
        raise ConfigError([Problem("--queue", None, "", message)])
    return Report(tuple(queues), tuple(findings))


def _failed(findings: list[Finding]) -> bool:
    return any(finding.check == "connection" for finding in findings)


async def _database(connection: Connection, name: str, database: DatabaseConfig) -> list[Finding]:
    server = await read_server(connection, database)
    horizon = await horizon_findings(connection, name, Session.of(database))
    return [*server_findings(name, server), *horizon]


async def _queue(
    connection: Connection, database: DatabaseConfig, config: QueueConfig
) -> tuple[QueueReport, list[Finding]]:
    """One queue; what fails in it is a finding and ends this queue's examination only."""
    model = config.model()
    session = Session.of(database, config.timezone, model.table.schema)
    report = QueueReport(config.database, config.name, model.table.label)
    findings: list[Finding] = []
    try:
        catalog = await read_catalog(connection, model.table, session)
        if catalog is None:
            return report, [await _no_table(connection, config, model, session)]
        findings += row_security_findings(config, catalog)
        closed = privilege_findings(config, catalog)
        if closed:
            return report, findings + closed
        # What the user wrote counts as optional here: the rest is still worth examining.
        state = new_queue_state(config)
        state.model = replace(model, explicit=frozenset())
        reader = QueueReader(state, database)
        inspection = await reader.inspection(connection)
        subject = Subject(
            config, connection, session, catalog, inspection.model, inspection.shape,
            inspection.missing,
        )  # fmt: skip
        findings += column_findings(subject)
        selects = await reader.selects(connection)
        subject = replace(subject, statements=await costs(connection, selects, session, catalog))
        report = replace(
            report,
            measurements=tuple(measurements(subject)),
            statements=tuple(subject.statements),
        )
        missing = await missing_indexes(subject)
        findings += await index_findings(subject, missing)
        findings += plan_findings(subject, missing)
        findings += await vacuum_findings(subject)
        findings += await lease_findings(subject)
        findings += await future_findings(subject)
        findings += await label_findings(subject, await reader.statements(connection))
    except PollError as error:
        if not connection.connected:
            raise
        findings.append(_unreadable(config, error))
    return report, findings


async def _no_table(
    connection: Connection, config: QueueConfig, model: QueueModel, session: Session
) -> Finding:
    elsewhere = await other_schemas(connection, model.table, session)
    return Finding(
        Severity.ERROR,
        "no_table",
        config.database,
        config.name,
        f"there is no table {model.table.label}",
        f"a table of that name stands at {', '.join(elsewhere)}"
        if elsewhere
        else "capitals and other characters need quotes; `discover` lists what is there",
        advice=tuple(f"in the configuration: table: '{name}'" for name in elsewhere),
    )


def _unreadable(config: QueueConfig, error: PollError) -> Finding:
    return Finding(
        Severity.ERROR,
        "unreadable",
        config.database,
        config.name,
        str(error),
        f"each poll fails here, and counts as poll_errors_total{{reason={error.reason}}}",
    )


def _unreachable(database: str, error: PollError) -> Finding:
    check = "connection" if error.reason is Reason.CONNECTION else "unreadable"
    why = "every queue of this database is absent until it answers"
    return Finding(Severity.ERROR, check, database, None, str(error), why)


def _nothing_found(database: str) -> Finding:
    return Finding(
        Severity.WARNING,
        "no_queues",
        database,
        None,
        "no table of a known kind was found",
        "`discover` also guesses at tables of other kinds, for a configuration file",
    )
