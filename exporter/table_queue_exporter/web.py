"""HTTP: the metrics page, health, readiness, reload, and a plain page for people."""

import gzip
import html
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from . import __version__
from .app import Exporter
from .errors import ConfigError
from .exposition import Format, negotiate

Handler = Callable[[web.Request], Awaitable[web.Response]]
_EOF = b"# EOF\n"


@dataclass(frozen=True)
class WebSettings:
    """Where things are served. ``route_prefix`` is "" or begins with a slash."""

    host: str | None
    port: int
    telemetry_path: str = "/metrics"
    route_prefix: str = ""
    enable_lifecycle: bool = False


def parse_listen_address(text: str) -> tuple[str | None, int]:
    """``:9947``, ``127.0.0.1:9947`` or ``[::1]:9947``; host None is every interface.

    Raises ValueError.
    """
    host, separator, port = text.rpartition(":")
    if not separator or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{text!r} is not an address: write host:port or :port")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r} is not an address: write an IPv6 host as [host]:port")
    return host or None, int(port)


class ProcessMetrics:
    """The process's own metrics, read anew at each scrape."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    def render(self, form: Format) -> bytes:
        """The families in a format, without an end mark."""
        if form is Format.TEXT:
            return generate_latest(self._registry)
        body: bytes = generate_openmetrics(self._registry)  # type: ignore[no-untyped-call]
        return body.removesuffix(_EOF)


class Site:
    """The request handlers of one exporter."""

    def __init__(self, exporter: Exporter, settings: WebSettings) -> None:
        self._exporter = exporter
        self._settings = settings
        self._process = ProcessMetrics()

    def application(self) -> web.Application:
        """The aiohttp application with every route."""
        prefix = self._settings.route_prefix
        app = web.Application()
        app.router.add_get(prefix + self._settings.telemetry_path, self._metrics)
        app.router.add_get(prefix + "/-/healthy", self._healthy)
        app.router.add_get(prefix + "/-/ready", self._ready)
        app.router.add_get(prefix + "/", self._index)
        app.router.add_post(prefix + "/-/reload", self._reload)
        return app

    async def _metrics(self, request: web.Request) -> web.Response:
        form = negotiate(", ".join(request.headers.getall("Accept", [])))
        body = self._exporter.page.body(form) + self._process.render(form)
        if form is Format.OPENMETRICS:
            body += _EOF
        headers = {"Content-Type": form.value, "Vary": "Accept, Accept-Encoding"}
        if _accepts_gzip(", ".join(request.headers.getall("Accept-Encoding", []))):
            headers["Content-Encoding"] = "gzip"
            body = gzip.compress(body, compresslevel=1)
        return web.Response(body=body, headers=headers)

    async def _healthy(self, request: web.Request) -> web.Response:
        stuck = self._exporter.unhealthy()
        if stuck:
            return web.Response(
                status=503, text=f"No poll has ended for long: {', '.join(stuck)}\n"
            )
        return web.Response(text="Healthy.\n")

    async def _ready(self, request: web.Request) -> web.Response:
        if self._exporter.is_ready():
            return web.Response(text="Ready.\n")
        return web.Response(status=503, text="Not every queue was tried yet.\n")

    async def _reload(self, request: web.Request) -> web.Response:
        if not self._settings.enable_lifecycle:
            return web.Response(status=403, text="Start with --web.enable-lifecycle for this.\n")
        try:
            await self._exporter.reload()
        except ConfigError as error:
            return web.Response(status=500, text=f"{error}\n")
        return web.Response(text="Reloaded.\n")

    async def _index(self, request: web.Request) -> web.Response:
        prefix = self._settings.route_prefix
        body = _PAGE.format(
            version=html.escape(__version__),
            metrics=html.escape(prefix + self._settings.telemetry_path),
            healthy=html.escape(prefix + "/-/healthy"),
            ready=html.escape(prefix + "/-/ready"),
            rows=self._rows() or '<tr><td colspan="5">No queue is configured or found.</td></tr>',
        )
        return web.Response(text=body, content_type="text/html")

    def _rows(self) -> str:
        now = time.monotonic()
        rows = []
        for queue in self._exporter.queues:
            up = queue.is_up(now)
            success = queue.last_success
            since = "never" if success is None else f"{now - success.taken:.0f} s ago"
            tried = "not tried yet" if queue.last_end is None else "not read"
            cells = (
                queue.config.database,
                queue.config.name,
                queue.table_label,
                "read" if up else tried,
                since if up else f"{since}; {self._exporter.error_of(queue)}",
            )
            mark = "up" if up else "down"
            tds = "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
            rows.append(f'<tr class="{mark}">{tds}</tr>')
        return "\n".join(rows)


def _accepts_gzip(header: str) -> bool:
    for item in header.lower().split(","):
        coding, *parameters = (part.strip() for part in item.split(";"))
        if coding in ("gzip", "x-gzip", "*"):
            weights = [p.removeprefix("q=") for p in parameters if p.startswith("q=")]
            return not weights or weights[0] not in ("0", "0.0", "0.00", "0.000")
    return False


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>table-queue-exporter</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem;
  padding: 0 1rem; }}
table {{ border-collapse: collapse; width: 100%; }}
th, td {{ text-align: left; padding: .4rem .8rem; border-bottom: 1px solid #8884;
  overflow-wrap: break-word; max-width: 30rem; vertical-align: top; }}
td:nth-child(4) {{ white-space: nowrap; }}
tr.down td:nth-child(4) {{ color: #c4162a; font-weight: 600; }}
tr.up td:nth-child(4) {{ color: #1a7f37; font-weight: 600; }}
@media (prefers-color-scheme: dark) {{
  body {{ background: #111217; color: #ccccdc; }} a {{ color: #6e9fff; }}
  tr.down td:nth-child(4) {{ color: #ff7383; }} tr.up td:nth-child(4) {{ color: #6ccf8e; }} }}
</style>
</head>
<body>
<h1>table-queue-exporter</h1>
<p>Version {version}. <a href="{metrics}">Metrics</a> · <a href="{healthy}">Health</a> ·
<a href="{ready}">Readiness</a></p>
<div style="overflow-x: auto">
<table>
<thead><tr><th>Database</th><th>Queue</th><th>Table</th><th>State</th><th>Last good poll</th></tr>
</thead>
<tbody>
{rows}
</tbody>
</table>
</div>
</body>
</html>
"""
