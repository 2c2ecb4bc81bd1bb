"""Tables to watch, and an exporter that reads them once."""

import asyncio
from importlib import resources

import psycopg

from table_queue_exporter.app import Exporter
from table_queue_exporter.config import parse_config
from table_queue_exporter.exposition import Format

from .pages import Metrics

REFERENCE_SCHEMA = (
    resources.files("table_queue_exporter.demo").joinpath("schema.sql").read_text("utf-8")
)
"""The demo's schema: the table ``payment`` with every index that the exporter likes."""


def configuration(dsn: str, *queues: str, database: str = "") -> str:
    """A configuration of one database ``main``; each queue as ``key: value`` lines."""
    text = f"databases:\n  main:\n    dsn: {dsn}\n"
    text += "".join(f"    {line}\n" for line in database.splitlines())
    text += "queues:\n"
    for queue in queues:
        lines = queue.strip().splitlines()
        text += "".join(
            f"  {'-' if index == 0 else ' '} {line.strip()}\n" for index, line in enumerate(lines)
        )
        text += "    database: main\n"
    return text


PAYMENT = "name: payment\ntable: public.payment"


async def read_once(text: str, *, search: bool = False) -> Metrics:
    """Runs the exporter until it has tried every queue once, and returns its page."""
    config = parse_config(text, environment={})
    exporter = Exporter(lambda: config, search=search)
    exporter.start()
    try:
        await until_ready(exporter)
        return Metrics(exporter.page.body(Format.TEXT).decode())
    finally:
        await exporter.stop()


async def until_ready(exporter: Exporter) -> None:
    """Returns when an exporter has tried every queue once."""
    async with asyncio.timeout(60):
        while not exporter.is_ready():  # noqa: ASYNC110  # readiness is asked for, as by a kubelet
            await asyncio.sleep(0.01)


def execute(dsn: str, *statements: str) -> None:
    """Runs statements, each in its own transaction."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def query(dsn: str, statement: str) -> list[tuple[object, ...]]:
    """The rows of one statement."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        return list(connection.execute(statement.encode()).fetchall())
