"""Messages for faststream-outbox: its own table and subscriber. ``install``, ``push``, ``work``."""

import asyncio
import json
import os
import sys
from datetime import timedelta

from faststream import FastStream
from faststream_outbox import ConstantRetry, NoRetry, OutboxBroker, make_outbox_table
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

metadata = MetaData()
table = make_outbox_table(metadata)
engine = create_async_engine(os.environ["DSN"].replace("postgresql://", "postgresql+asyncpg://"))
broker = OutboxBroker(engine, outbox_table=table)


@broker.subscriber("ok")
async def ok(body: dict[str, str]) -> None:
    pass


@broker.subscriber("fail", retry_strategy=NoRetry())
async def fail(body: dict[str, str]) -> None:
    raise RuntimeError("broken")


@broker.subscriber("retry", retry_strategy=ConstantRetry(delay_seconds=3600, max_attempts=5))
async def retry(body: dict[str, str]) -> None:
    raise RuntimeError("later")


@broker.subscriber("slow")
async def slow(body: dict[str, str]) -> None:
    await asyncio.sleep(600)


async def main() -> None:
    match sys.argv[1]:
        case "install":
            async with engine.begin() as connection:
                await connection.run_sync(metadata.create_all)
        case "push":
            async with AsyncSession(engine) as session, session.begin():
                for name, count in json.loads(sys.argv[2]).items():
                    for _ in range(count):
                        delay = timedelta(hours=1) if name == "delayed" else None
                        queue = "ok" if name == "delayed" else name
                        await broker.publish({}, queue=queue, session=session, activate_in=delay)
        case "work":
            await FastStream(broker).run()


asyncio.run(main())
