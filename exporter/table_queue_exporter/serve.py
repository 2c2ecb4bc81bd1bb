"""Runs the exporter and its web server until a signal ends them."""

import asyncio
import signal
from pathlib import Path

import structlog
from aiohttp import web

from . import __version__
from .app import Exporter
from .errors import ConfigError, ExporterError
from .watch import watch
from .web import Site, WebSettings
from .web_guard import WebGuard

log = structlog.get_logger()

_SHUTDOWN_TIMEOUT = 1.0
"""Seconds that open requests get to end; everything must be over within 5."""


async def serve(
    exporter: Exporter,
    settings: WebSettings,
    guard: WebGuard | None = None,
    watched: Path | None = None,
) -> None:
    """Serves until SIGTERM or SIGINT. SIGHUP reloads, and so does a change of ``watched``.

    Raises ExporterError at a taken port.
    """
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    reloads: set[asyncio.Task[None]] = set()

    def reload() -> None:
        task = asyncio.create_task(_reload(exporter))
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    loop.add_signal_handler(signal.SIGHUP, reload)
    application = Site(exporter, settings).application()
    context = None
    if guard is not None:
        application.middlewares.append(guard.middleware())
        context = guard.context()
    runner = web.AppRunner(
        application,
        access_log=None,
        shutdown_timeout=_SHUTDOWN_TIMEOUT,
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, settings.host, settings.port, ssl_context=context)
        try:
            await site.start()
        except OSError as error:
            raise ExporterError(
                f"cannot listen on {settings.host or ''}:{settings.port}: {error.strerror}; "
                "choose another --web.listen-address"
            ) from error
        exporter.start()
        if watched is not None:
            reloads.add(asyncio.create_task(watch(watched, lambda: _reload(exporter))))
        address = runner.addresses[0]
        log.info("listening", address=f"{address[0]}:{address[1]}", version=__version__)
        await stopping.wait()
        log.info("stopping")
    finally:
        for task in reloads:
            task.cancel()
        await exporter.stop()
        await runner.cleanup()


async def _reload(exporter: Exporter) -> None:
    try:
        await exporter.reload()
    except ConfigError:
        return  # said in the log by the exporter, and on the page
