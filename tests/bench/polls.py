"""``make bench``: what a poll costs beside many finished rows, and what counting them would cost.

``ROWS=1000000 make bench`` for a smaller table.
"""

import asyncio
import os
import statistics
import sys
import time

import psycopg

from table_queue_exporter.demo.server import LocalServer
from tests.support.plans import load, pages, statements_of
from tests.support.queues import PAYMENT, REFERENCE_SCHEMA, configuration, execute, read_once

NAIVE = "SELECT status, count(*) FROM payment GROUP BY status"


def main() -> None:
    """Prints pages and times of the exporter's statements and of the naive one."""
    rows = int(os.environ.get("ROWS", "10000000"))
    settings = {"shared_buffers": "1GB", "max_wal_size": "8GB", "autovacuum": "off"}
    with LocalServer(settings=settings) as server:
        dsn = server.create_database("bench")
        _say(f"loading {rows:,} finished, 10,000 waiting and 200 processing rows ...")
        execute(dsn, REFERENCE_SCHEMA, *load(rows))
        statements, session = asyncio.run(statements_of(dsn, PAYMENT))
        total_pages, total_time = 0, 0.0
        _say(f"{'statement':<24}{'pages':>10}{'median of 9':>16}")
        for step, selects in (("ages", statements.ages), ("counts", statements.counts)):
            touched = pages(dsn, selects, session)
            for select in selects:
                seconds = _median(dsn, select.sql, [*session.settings(), *_set(select.settings)])
                total_pages += touched[select.name]
                total_time += seconds
                _row(f"{step}: {select.name}", touched[select.name], seconds)
        _row("one poll", total_pages, total_time)
        with psycopg.connect(dsn, autocommit=True) as connection:
            row = connection.execute(
                f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {NAIVE}".encode()
            ).fetchone()
            assert row is not None
            plan = row[0][0]["Plan"]
        _row(
            "naive GROUP BY status",
            plan["Shared Hit Blocks"] + plan["Shared Read Blocks"],
            _median(dsn, NAIVE, [], runs=3),
        )
        page = asyncio.run(read_once(configuration(dsn, PAYMENT)))
        _say(f"poll_duration_seconds of a first poll: {page.value('poll_duration_seconds')}")


def _set(settings: tuple[str, ...]) -> list[str]:
    return [f"SET LOCAL {setting}" for setting in settings]


def _median(dsn: str, sql: str, settings: list[str], *, runs: int = 9) -> float:
    times = []
    with psycopg.connect(dsn, autocommit=True) as connection:
        for _ in range(runs):
            with connection.transaction():
                for setting in settings:
                    connection.execute(setting.encode())
                begun = time.perf_counter()
                connection.execute(sql.encode()).fetchall()
                times.append(time.perf_counter() - begun)
    return statistics.median(times)


def _row(name: str, touched: int, seconds: float) -> None:
    _say(f"{name:<24}{touched:>10,}{seconds * 1000:>13.1f} ms")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
