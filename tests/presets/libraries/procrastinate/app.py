"""Jobs for procrastinate: its own schema, its own worker. ``install``, ``push JSON``, ``work``."""

import asyncio
import json
import os
import sys

import procrastinate

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=os.environ["DSN"]))


@app.task(name="ok")
def ok() -> None:
    pass


@app.task(name="fail")
def fail() -> None:
    raise RuntimeError("broken")


@app.task(name="retry", retry=procrastinate.RetryStrategy(max_attempts=5, wait=3600))
def retry() -> None:
    raise RuntimeError("later")


@app.task(name="slow")
async def slow() -> None:
    await asyncio.sleep(600)


async def main() -> None:
    async with app.open_async():
        match sys.argv[1]:
            case "install":
                await app.schema_manager.apply_schema_async()
            case "push":
                for name, count in json.loads(sys.argv[2]).items():
                    for _ in range(count):
                        if name == "delayed":
                            await app.configure_task("ok", schedule_in={"hours": 1}).defer_async()
                        elif name == "blocked":
                            await app.configure_task("ok", lock="one").defer_async()
                        elif name == "locked":
                            await app.configure_task("slow", lock="one").defer_async()
                        else:
                            await app.configure_task(name).defer_async()
            case "work":
                await app.run_worker_async(concurrency=4, install_signal_handlers=False)


asyncio.run(main())
