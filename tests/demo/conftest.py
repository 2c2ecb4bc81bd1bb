from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from psycopg import AsyncConnection

from table_queue_exporter.demo.queue import Connection
from table_queue_exporter.demo.server import LocalServer
from table_queue_exporter.demo.stage import create_schema

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def server() -> Iterator[LocalServer]:
    with LocalServer() as running:
        yield running


@pytest.fixture
def empty_dsn(server: LocalServer) -> str:
    return server.create_database(f"demo_{next(_numbers)}")


@pytest_asyncio.fixture
async def dsn(empty_dsn: str) -> str:
    await create_schema(empty_dsn)
    return empty_dsn


@pytest_asyncio.fixture
async def connection(dsn: str) -> AsyncIterator[Connection]:
    async with await AsyncConnection.connect(dsn, autocommit=True) as opened:
        yield opened
