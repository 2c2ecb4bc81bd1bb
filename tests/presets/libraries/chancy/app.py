"""Jobs for Chancy: its own schema, its own worker. ``install``, ``push JSON``, ``work``."""

import asyncio
import json
import os
import sys
from datetime import UTC, datetime, timedelta

from chancy import Chancy, Job, Queue, Worker
from chancy.plugins.leadership import Leadership
from chancy.plugins.retry import RetryPlugin

LATER = {"retry_settings": {"backoff": 3600, "backoff_factor": 1, "backoff_limit": 7200}}


async def ok() -> None:
    pass


async def fail() -> None:
    raise RuntimeError("broken")


async def slow() -> None:
    await asyncio.sleep(600)


def job(name: str) -> Job:
    new = Job(func=f"app.{'fail' if name == 'retry' else 'ok' if name == 'delayed' else name}")
    if name == "delayed":
        return new.with_scheduled_at(datetime.now(UTC) + timedelta(hours=1))
    if name == "retry":
        return new.with_max_attempts(5).with_meta(LATER)
    return new


async def main() -> None:
    plugins = [RetryPlugin(), Leadership()]
    async with Chancy(os.environ["DSN"], plugins=plugins, no_default_plugins=True) as chancy:
        match sys.argv[1]:
            case "install":
                await chancy.migrate()
                queue = Queue("default", concurrency=4, executor=Chancy.Executor.Async)
                await chancy.declare(queue)
            case "push":
                for name, count in json.loads(sys.argv[2]).items():
                    for _ in range(count):
                        await chancy.push(job(name))
            case "work":
                async with Worker(chancy) as worker:
                    await worker.wait_for_shutdown()


if __name__ == "__main__":
    asyncio.run(main())
