"""Programs that run beside the demo, the exporter first: started, watched, ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from table_queue_exporter.demo.server import free_port
from table_queue_exporter.demo.stage import DemoError
from table_queue_exporter.demo.supervisor import describe, end, tail

_UP_WITHIN = 20.0
_END_WITHIN = 6.0  # the exporter promises to end within 5 s of SIGTERM


@dataclass(frozen=True)
class Program:
    """A program that runs beside the demo until it ends."""

    name: str
    command: Sequence[str]
    url: str
    """Where a person looks at it."""
    port: int
    """The port that takes connections once the program is up."""


def choose_address(wanted: str, echo: Callable[[str], None]) -> tuple[str, int]:
    """Return host and port to listen on: the wanted ones, or a free port (always so for port 0).

    Raises:
        ValueError: it is not an address.
    """
    host, separator, port_text = wanted.rpartition(":")
    if not separator or not port_text.isdigit():
        raise ValueError(f"{wanted!r} is not an address such as 127.0.0.1:9947 or :9947")
    host, port = host.strip("[]"), int(port_text)
    if port and _is_free(host, port):
        return host, port
    other = free_port()
    if port:
        echo(f"port {port} is taken; listening on {other} instead")
    return host, other


def _is_free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


async def start(
    stack: AsyncExitStack, directory: Path, program: Program, stop: asyncio.Event
) -> subprocess.Popen[bytes]:
    """Start a program that ends with the stack, and wait until it takes connections.

    Raises:
        DemoError: it ended, or was not up in time; the message carries its output.
    """
    log_file = directory / f"{program.name}.log"
    process = _launch(program, directory, log_file)
    stack.push_async_callback(end, [process], _END_WITHIN)
    deadline = time.monotonic() + _UP_WITHIN
    while not stop.is_set():
        if process.poll() is not None:
            raise DemoError(f"the {program.name} ended ({describe(process)}):\n{tail(log_file)}")
        if await _takes_connections(program.port):
            break
        if time.monotonic() > deadline:
            raise DemoError(f"the {program.name} was not up in time:\n{tail(log_file)}")
        await asyncio.sleep(0.05)
    return process


def _launch(program: Program, directory: Path, log_file: Path) -> subprocess.Popen[bytes]:
    with log_file.open("ab") as log:
        return subprocess.Popen(
            list(program.command),
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # the terminal's Ctrl-C is for us, who stop it in order
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )


async def _takes_connections(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("localhost", port)
    except OSError:
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True
