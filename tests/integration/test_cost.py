"""What a poll costs the server: pages, not seconds."""

import asyncio
import itertools
import time

import psycopg

from table_queue_exporter.app import Exporter
from table_queue_exporter.config import parse_config
from table_queue_exporter.demo import queue as demo_queue
from table_queue_exporter.demo.server import LocalServer
from table_queue_exporter.exposition import Format
from table_queue_exporter.slices import SECOND, Horizon, marks
from tests.support.pages import Metrics
from tests.support.plans import events_of, load, pages, statements_of
from tests.support.queues import (
    PAYMENT,
    REFERENCE_SCHEMA,
    configuration,
    execute,
    query,
    until_ready,
)


async def test_pages_do_not_depend_on_finished_rows(server: LocalServer) -> None:
    totals = {}
    for finished in (10_000, 200_000):
        dsn = server.create_database(f"cost_{finished}")
        execute(dsn, REFERENCE_SCHEMA, *load(finished))
        statements, session = await statements_of(dsn, PAYMENT)
        touched = pages(dsn, [*statements.ages, *statements.counts], session)
        totals[finished] = sum(touched.values())
        assert totals[finished] <= 150, touched
    assert abs(totals[200_000] - totals[10_000]) <= 0.1 * totals[10_000], totals


async def test_the_ages_cost_little_and_the_pace_gives_way_on_a_busy_table() -> None:
    """Workers at full rate for a minute; nothing is vacuumed."""
    with LocalServer(settings={"autovacuum": "off"}) as server:
        dsn = server.create_database("busy")
        execute(dsn, REFERENCE_SCHEMA)
        config = parse_config(configuration(dsn, PAYMENT + "\ninterval: 1s"), environment={})
        exporter = Exporter(lambda: config)
        exporter.start()
        stopping = asyncio.Event()
        work = [asyncio.create_task(_work(dsn, stopping)) for _ in range(4)]
        work.append(asyncio.create_task(_produce(dsn, stopping)))
        state = exporter.queues[0]
        over: list[bool] = []
        costs: list[int] = []
        seen = 0
        try:
            until = time.monotonic() + 60
            while time.monotonic() < until:
                await asyncio.sleep(0.02)
                if state.polls > seen and state.last_end is not None and state.duration is not None:
                    seen = state.polls
                    # The pace that this poll's duration was measured against is the one it left.
                    over.append(state.duration > state.config.budget * state.pace * 1.001)
                if len(costs) < int(6 - (until - time.monotonic()) / 10):
                    statements, session = await statements_of(dsn, PAYMENT)
                    touched = await asyncio.to_thread(pages, dsn, statements.ages, session)
                    costs.append(sum(touched.values()))
        finally:
            stopping.set()
            await asyncio.gather(*work)
            await exporter.stop()
        ((finished,),) = query(dsn, "SELECT count(*) FROM payment WHERE status = 'DONE'")
        assert isinstance(finished, int)
        assert finished > 5_000, "the table was not busy"
        assert len(costs) >= 5
        assert max(costs) < 2000, costs
        assert not any(a and b for a, b in itertools.pairwise(over)), over
        page = Metrics(exporter.page.body(Format.TEXT).decode())
        assert sum(page.by("reason", "poll_errors_total").values()) == 0


async def _produce(dsn: str, stopping: asyncio.Event) -> None:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        while not stopping.is_set():
            await connection.execute(
                "INSERT INTO payment (task_type) SELECT "
                "(ARRAY['limits_check', 'receipt', 'transfer'])[1 + i % 3] "
                "FROM generate_series(1, 200) i "
                "WHERE (SELECT count(*) FROM (SELECT 1 FROM payment WHERE status = 'NEW' "
                "LIMIT 2000) waiting) < 2000"
            )
            await asyncio.sleep(0.02)


async def _work(dsn: str, stopping: asyncio.Event) -> None:
    """The demo's own claim and finish, without the call that takes time."""
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        while not stopping.is_set():
            for task in await demo_queue.claim(connection, 20, 300):
                await demo_queue.finish(connection, task)


async def test_a_scrape_formats_no_sample(newest_dsn: str) -> None:
    execute(newest_dsn, REFERENCE_SCHEMA, "INSERT INTO payment (task_type) VALUES ('a')")
    config = parse_config(configuration(newest_dsn, PAYMENT + "\ninterval: 1h"), environment={})
    exporter = Exporter(lambda: config)
    exporter.start()
    try:
        await until_ready(exporter)
        renders = exporter.page.renders
        bodies = {exporter.page.body(form) for _ in range(100) for form in Format}
        assert len(bodies) == 2, "the same bytes each time"
        assert exporter.page.renders == renders
    finally:
        await exporter.stop()


async def test_event_pages_are_linear_in_new_rows_not_in_the_table(
    newest_server: LocalServer,
) -> None:
    """And the reply has the same size whatever happened."""
    costs: dict[tuple[int, int], int] = {}
    replies = {}
    for table in (20_000, 200_000):
        for new in (1_000, 10_000):
            dsn = newest_server.create_database(f"events_{table}_{new}")
            execute(dsn, REFERENCE_SCHEMA, *load(table))
            execute(
                dsn,
                "INSERT INTO payment (task_type, status, started_at, finished_at, attempts) "
                "SELECT (ARRAY['limits_check', 'receipt', 'transfer'])[1 + i % 3], 'DONE', now(),"
                f" now(), 1 FROM generate_series(1, {new}) i",
                "VACUUM ANALYZE payment",
            )
            ((now,),) = query(dsn, "SELECT (extract(epoch FROM now()) * 1000000)::bigint")
            assert isinstance(now, int)
            event_statements, session = await events_of(dsn, PAYMENT)
            since = now - 600 * SECOND
            at = marks(Horizon(now, {}, frozenset()), None)
            select = event_statements.finished(since, at, 50_000)
            costs[table, new] = pages(dsn, [select], session)["finished"]
            replies[table, new] = len(query(dsn, select.sql))
    for new in (1_000, 10_000):
        small, large = costs[20_000, new], costs[200_000, new]
        assert abs(large - small) <= 0.1 * small + 5, costs
    for table in (20_000, 200_000):
        assert costs[table, 10_000] <= 12 * costs[table, 1_000], costs
    assert len(set(replies.values())) == 1, replies
