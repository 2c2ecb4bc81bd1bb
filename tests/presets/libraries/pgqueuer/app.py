"""Jobs for PgQueuer: its own schema, its own worker. ``install``, ``push JSON``, ``work``."""

import asyncio
import json
import os
import sys
from datetime import timedelta

import asyncpg
from pgqueuer import AsyncpgDriver, Job, PgQueuer, Queries, RetryRequested


async def main() -> None:
    connection = await asyncpg.connect(os.environ["DSN"])
    queries = Queries(AsyncpgDriver(connection))
    match sys.argv[1]:
        case "install":
            await queries.install()
        case "push":
            for name, count in json.loads(sys.argv[2]).items():
                for _ in range(count):
                    delay = timedelta(hours=1) if name == "delayed" else timedelta(0)
                    entrypoint = "ok" if name == "delayed" else name
                    await queries.enqueue(entrypoint, None, execute_after=delay)
        case "work":
            await work(PgQueuer.from_asyncpg_connection(connection))


async def work(pgq: PgQueuer) -> None:
    @pgq.entrypoint("ok")
    async def ok(job: Job) -> None:
        pass

    @pgq.entrypoint("fail")
    async def fail(job: Job) -> None:
        raise RuntimeError("broken")

    @pgq.entrypoint("held", on_failure="hold")
    async def held(job: Job) -> None:
        raise RuntimeError("broken")

    @pgq.entrypoint("retry")
    async def retry(job: Job) -> None:
        raise RetryRequested(delay=timedelta(hours=1))

    @pgq.entrypoint("slow")
    async def slow(job: Job) -> None:
        await asyncio.sleep(600)

    await pgq.run(dequeue_timeout=timedelta(seconds=1))


asyncio.run(main())
