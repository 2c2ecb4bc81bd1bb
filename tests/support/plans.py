"""What a poll costs, read from the plans of its own statements."""

import json
from collections.abc import Sequence

import psycopg

from table_queue_exporter.access import Select
from table_queue_exporter.config import QueueConfig, parse_config
from table_queue_exporter.event_statements import EventStatements
from table_queue_exporter.postgres import Connection, Session
from table_queue_exporter.queue_reader import QueueReader
from table_queue_exporter.statements import QueueStatements
from table_queue_exporter.store import new_queue_state

from .queues import configuration


async def statements_of(dsn: str, queue: str) -> tuple[QueueStatements, Session]:
    """The very statements that the exporter would run against a table as it is now."""
    config = parse_config(configuration(dsn, queue), environment={})
    settings: QueueConfig = config.queues[0]
    connection = Connection(config.databases["main"])
    await connection.connect()
    try:
        reader = QueueReader(new_queue_state(settings), config.databases["main"])
        return await reader.statements(connection), Session.of(config.databases["main"])
    finally:
        await connection.close()


async def events_of(dsn: str, queue: str) -> tuple[EventStatements, Session]:
    """The event SELECTs of a table as it is now."""
    config = parse_config(configuration(dsn, queue), environment={})
    connection = Connection(config.databases["main"])
    await connection.connect()
    try:
        state = new_queue_state(config.queues[0])
        reader = QueueReader(state, config.databases["main"])
        found = await reader.inspection(connection)
        statements = EventStatements(found.model, found.shape, state.layout)
        return statements, Session.of(config.databases["main"])
    finally:
        await connection.close()


def pages(dsn: str, selects: Sequence[Select], session: Session) -> dict[str, int]:
    """Pages that each statement touches, by EXPLAIN (ANALYZE, BUFFERS)."""
    touched = {}
    with psycopg.connect(dsn, autocommit=True) as connection:
        for select in selects:
            with connection.transaction():
                for setting in (
                    *session.settings(),
                    "SET LOCAL statement_timeout = 0",
                    *(f"SET LOCAL {setting}" for setting in select.settings),
                ):
                    connection.execute(setting.encode())
                explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {select.sql}"
                row = connection.execute(explain.encode()).fetchone()
                assert row is not None
                plan = row[0] if isinstance(row[0], list) else json.loads(row[0])
                node = plan[0]["Plan"]
                touched[select.name] = node["Shared Hit Blocks"] + node["Shared Read Blocks"]
    return touched


LOAD = (
    """
    INSERT INTO payment (task_type, status, created_at, next_attempt_at, started_at, finished_at,
      attempts)
    SELECT (ARRAY['limits_check', 'receipt', 'transfer'])[1 + i % 3],
      CASE WHEN i % 1000 = 0 THEN 'FAILED' ELSE 'DONE' END, t, t, t, t, 1
    FROM generate_series({finished}, 1, -1) i,
      LATERAL (SELECT now() - interval '1 h' - i * interval '1 s' AS t) times
    """,
    """
    INSERT INTO payment (task_type, created_at, next_attempt_at, attempts)
    SELECT (ARRAY['limits_check', 'receipt', 'transfer'])[1 + i % 3],
      now() - i * interval '1 s', now() - (i - 1000) * interval '1 s', i % 3
    FROM generate_series({waiting}, 1, -1) i
    """,
    """
    INSERT INTO payment (task_type, status, created_at, claimed_until, started_at, attempts)
    SELECT (ARRAY['limits_check', 'receipt', 'transfer'])[1 + i % 3], 'PROCESSING',
      now() - interval '1 min', now() + (i - 3) * interval '10 s', now() - interval '20 s', 1
    FROM generate_series({processing}, 1, -1) i
    """,
    "VACUUM ANALYZE payment",
)
"""A queue with finished, waiting and processing rows, in the order in which they would come."""


def load(finished: int, *, waiting: int = 10_000, processing: int = 200) -> list[str]:
    """The statements that fill the reference table."""
    return [step.format(finished=finished, waiting=waiting, processing=processing) for step in LOAD]
