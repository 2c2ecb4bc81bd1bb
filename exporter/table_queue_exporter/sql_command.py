"""The command ``sql``: the exact statements of a poll and the privileges that they need."""

import time

from .access import Access, Shape
from .config import Config, DatabaseConfig
from .errors import ConfigError, Problem
from .event_reader import WATCH_SECONDS
from .event_statements import CHUNK_ROWS, EventStatements
from .horizon import HORIZON
from .inspection import Inspection, inspect, used_expressions
from .model import QueueModel
from .postgres import Connection, Session, build_message
from .server_stats import DATABASE_STATEMENT, table_statement
from .slices import SECOND, Horizon, marks
from .sqltext import names_in, quote_name
from .statements import build_statements
from .store import QueueState, new_queue_state

ROLE = "table_queue_exporter"
"""The role that the printed GRANTs name."""


async def describe(config: Config, queue: str | None, *, offline: bool) -> str:
    """SQL text for one queue, or for all of a configuration. Raises ConfigError and PollError."""
    states = [new_queue_state(q) for q in config.queues if queue in (None, q.name)]
    if queue is not None and not states:
        known = ", ".join(q.name for q in config.queues) or "none"
        raise ConfigError([Problem("--queue", None, "", f"no queue {queue!r}; known: {known}")])
    parts = []
    for name, database in config.databases.items():
        mine = [state for state in states if state.config.database == name]
        connection = Connection(database)
        try:
            if not offline:
                await connection.connect()
            if mine or queue is None:
                message = build_message([DATABASE_STATEMENT], Session.of(database))
                parts.append(_block(f"Database {name}: who holds the xmin horizon", message))
            for state in mine:
                session = _session(state, database)
                found = (
                    _assumed(state.model)
                    if offline
                    else await inspect(connection, state.model, session)
                )
                parts.append(_queue_text(state, found, session))
        finally:
            await connection.close()
    return "\n".join(parts)


def _session(state: QueueState, database: DatabaseConfig) -> Session:
    return Session.of(database, state.config.timezone, state.model.table.schema)


def _assumed(model: QueueModel) -> Inspection:
    """What a table has that lacks nothing."""
    columns = set().union(*(names_in(sql) for sql in used_expressions(model)))
    return Inspection(model, Shape(frozenset(Access)), tuple(sorted(columns)), {})


def _queue_text(state: QueueState, found: Inspection, session: Session) -> str:
    statements = build_statements(
        found.model,
        found.shape,
        count_limit=state.config.count_limit,
        failed_window=state.config.failed_window,
    )
    title = f"Queue {state.config.name} ({found.model.table.label})"
    return "\n".join(
        [
            _grants(title, found),
            _block(f"{title}: ages", build_message(statements.ages, session)),
            _block(f"{title}: counts", build_message(statements.counts, session)),
            *_event_blocks(title, state, found, session),
            _block(f"{title}: table", build_message([table_statement(found.model)], session)),
        ]
    )


def _event_blocks(title: str, state: QueueState, found: Inspection, session: Session) -> list[str]:
    """The event messages as they would read now; each poll puts its own times in."""
    statements = EventStatements(found.model, found.shape, state.layout)
    now = int(time.time()) * SECOND
    at = marks(Horizon(now, {}, frozenset()), None)
    since = at.safe - round(state.config.interval) * SECOND
    selects = []
    if statements.counts_finished:
        selects.append(statements.finished(since, at, CHUNK_ROWS))
    if statements.counts_enqueued:
        selects.append(statements.enqueued(since, at, CHUNK_ROWS))
    if statements.sees_reclaims:
        selects.append(statements.lease_watch(WATCH_SECONDS))
    if not selects:
        return []
    events = build_message(selects, session, one_snapshot=True)
    return [
        _block(
            f"{title}: what may still be added, before the events",
            build_message([HORIZON], session),
        ),
        _block(f"{title}: events, in one snapshot with the counts (times are examples)", events),
    ]


def _grants(title: str, found: Inspection) -> str:
    table = found.model.table
    columns = ", ".join(quote_name(column) for column in found.columns)
    beside = "".join(f"GRANT SELECT ON {t.sql} TO {ROLE};\n" for t in found.model.related)
    return (
        f"-- {title}: the privileges that this needs, for a role of your choice\n"
        f"-- CREATE ROLE {ROLE} LOGIN;\n"
        f"GRANT USAGE ON SCHEMA {quote_name(table.schema)} TO {ROLE};\n"
        f"GRANT SELECT ({columns}) ON {table.sql} TO {ROLE};\n"
        f"{beside}"
        f"-- To see who holds vacuum back:\n"
        f"GRANT pg_read_all_stats TO {ROLE};\n"
    )


def _block(title: str, message: str) -> str:
    return f"-- {title}\nBEGIN;\n{message};\nCOMMIT;\n"
