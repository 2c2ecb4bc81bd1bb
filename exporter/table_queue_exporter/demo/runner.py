"""The demo as one command: the reference queue at work, and the exporter reading it."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import psycopg
import typer
import yaml

from table_queue_exporter.demo.beside import Program, choose_address, start
from table_queue_exporter.demo.companions import companions
from table_queue_exporter.demo.faults import FAULTS
from table_queue_exporter.demo.server import ServerError
from table_queue_exporter.demo.stage import Demo, DemoError
from table_queue_exporter.demo.supervisor import describe, tail

__all__ = ["Demo", "DemoError", "Program", "companions", "run"]

_WARM_UP = 3.0
_STATUS_EVERY = 3.0

_STATUS = """
SELECT count(*) FILTER (WHERE status = 'NEW' AND next_attempt_at <= now()),
       count(*) FILTER (WHERE status = 'NEW' AND next_attempt_at > now()),
       count(*) FILTER (WHERE status = 'PROCESSING' AND claimed_until >= now()),
       count(*) FILTER (WHERE status = 'PROCESSING' AND claimed_until < now()),
       count(*) FILTER (WHERE status = 'DONE'),
       count(*) FILTER (WHERE status = 'FAILED'),
       coalesce(extract(epoch FROM now() - min(greatest(created_at, next_attempt_at))
           FILTER (WHERE status = 'NEW' AND next_attempt_at <= now())), 0)
FROM payment
"""


async def run(
    fault: str | None = None,
    duration: float | None = None,
    listen_address: str = "127.0.0.1:9947",
    *,
    dsn: str | None = None,
    workers: int = 3,
    rate: float = 8.0,
    interval: str = "2s",
    exporter: bool = True,
    echo: Callable[[str], None] = typer.echo,
) -> int:
    """Run the demo until a signal comes or the time is up, and leave nothing behind.

    Args:
        fault: name of a fault that is switched on after a few seconds.
        duration: seconds after which the demo ends; None to wait for Ctrl-C.
        listen_address: `host:port` or `:port` of the exporter; another port if this one is taken.
        dsn: a database to play in; None starts a private server.
        workers: worker processes.
        rate: tasks enqueued each second.
        interval: of the exporter's polls.
        exporter: whether to start the exporter.
        echo: takes each line of output.

    Returns:
        The exit code: 0 fine, 1 when a program failed, 2 for a fault or an address that is none.
    """
    if fault is not None and fault not in FAULTS:
        echo(f"no fault is called {fault}; there are: {', '.join(FAULTS)}")
        return 2
    try:
        address = choose_address(listen_address, echo) if exporter else None
    except ValueError as error:
        echo(str(error))
        return 2
    with _stop_signals() as stop:
        try:
            async with AsyncExitStack() as stack:
                demo = await stack.enter_async_context(Demo(dsn=dsn, workers=workers, rate=rate))
                until = None if duration is None else time.monotonic() + duration
                programs = await _start_programs(stack, demo, address, interval, stop, echo)
                if fault is not None:
                    await stack.enter_async_context(_later(demo, fault, echo))
                await _watch(demo, programs, stop, until, echo)
                echo("stopping")
        except (DemoError, ServerError, psycopg.Error) as error:
            echo(f"the demo failed: {error}")
            return 1
    return 0


@contextlib.contextmanager
def _stop_signals() -> Iterator[asyncio.Event]:
    """Yield an event that SIGINT, SIGTERM and SIGHUP set, however often they come."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        # A second Ctrl-C changes nothing: tidying up takes a second and must not be interrupted.
        loop.add_signal_handler(number, stop.set)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            if handler is not None:  # None: it was not set from Python
                signal.signal(number, handler)


def _write_config(demo: Demo, interval: str) -> Path:
    """Write the exporter's configuration and return its path."""
    config = {
        "databases": {"demo": {"dsn": demo.dsn}},
        "defaults": {"interval": interval},
        "queues": [
            {
                "name": "payment",
                "database": "demo",
                "table": "public.payment",
                "preset": "lease",
                "lease": f"{demo.timings.lease:.0f}s",
                "objective": "10s",
            }
        ],
    }
    file = demo.directory / "exporter.yaml"
    file.touch(mode=0o600)  # the address of your own database may hold a password
    file.write_text(yaml.safe_dump(config, sort_keys=False))
    return file


async def _start_programs(
    stack: AsyncExitStack,
    demo: Demo,
    address: tuple[str, int] | None,
    interval: str,
    stop: asyncio.Event,
    echo: Callable[[str], None],
) -> list[tuple[Program, subprocess.Popen[bytes]]]:
    running: list[tuple[Program, subprocess.Popen[bytes]]] = []
    if address is not None:
        host, port = address
        shown = host if host not in ("", "0.0.0.0", "::") else "127.0.0.1"
        shown = f"[{shown}]" if ":" in shown else shown
        config = _write_config(demo, interval)
        exporter = Program(
            "exporter",
            [
                *(sys.executable, "-m", "table_queue_exporter", "serve"),
                f"--config.file={config}",
                f"--web.listen-address={f'[{host}]' if ':' in host else host}:{port}",
            ],
            f"http://{shown}:{port}/",
            port,
        )
        running = [
            (program, await start(stack, demo.directory, program, stop))
            for program in (exporter, *companions(demo.directory, port))
        ]
        echo(f"metrics      {exporter.url}metrics")
        echo(f"status page  {exporter.url}")
        for program, _ in running[1:]:
            echo(f"{program.name:<12} {program.url}")
    echo(f"table        psql {shlex.quote(demo.dsn)} -c 'TABLE payment'")
    echo("stop         Ctrl-C")
    return running


@contextlib.asynccontextmanager
async def _later(demo: Demo, fault: str, echo: Callable[[str], None]) -> AsyncIterator[None]:
    """Switch the fault on after a few good seconds, and undo it at the end."""

    async def play() -> None:
        await asyncio.sleep(_WARM_UP)
        async with demo.fault(fault):
            echo(f"fault on: {fault}: {FAULTS[fault].description}")
            await asyncio.Event().wait()  # until cancelled

    task = asyncio.create_task(play())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled() and task.exception() is not None:
            await task


async def _watch(
    demo: Demo,
    programs: list[tuple[Program, subprocess.Popen[bytes]]],
    stop: asyncio.Event,
    until: float | None,
    echo: Callable[[str], None],
) -> None:
    """Print a line every few seconds until told to stop or the time is up.

    Raises:
        DemoError: one of the programs ended by itself.
    """
    began = time.monotonic()
    failures = 0
    while not stop.is_set() and (until is None or time.monotonic() < until):
        for program, process in programs:
            if process.poll() is not None:
                output = tail(demo.directory / f"{program.name}.log")
                raise DemoError(f"the {program.name} ended ({describe(process)}):\n{output}")
        if demo.supervisor.failures > failures:
            failures = demo.supervisor.failures
            echo(f"a worker failed:\n{demo.supervisor.output}")
        echo(await _status_line(demo, time.monotonic() - began))
        pause = _STATUS_EVERY if until is None else min(_STATUS_EVERY, until - time.monotonic())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, pause)):
                await stop.wait()


async def _status_line(demo: Demo, seconds: float) -> str:
    try:
        [(ready, delayed, processing, expired, done, failed, age)] = await demo.query(_STATUS)
    except psycopg.OperationalError as error:
        return f"{seconds:4.0f} s  no answer from the database: {str(error).splitlines()[0]}"
    return (
        f"{seconds:4.0f} s  ready {ready}  delayed {delayed}  processing {processing}"
        f"  expired {expired}  done {done}  failed {failed}"
        f"  oldest ready {age:.1f} s  workers {len(demo.supervisor.pids)}"
    )
