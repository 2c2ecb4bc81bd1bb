"""The command line: commands and flags; nothing else."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from . import __version__
from .app import Exporter
from .cli_options import ENV, ConfigFile, DatabaseDsn, DsnFile, Level, LogForm, WebConfigFile
from .config import Config, load_config
from .discover_command import discover_text
from .doctor.diagnosis import diagnose
from .doctor.report import ReportFormat, render
from .durations import parse_duration
from .errors import ConfigError, ExporterError, Problem
from .logs import LogFormat, LogLevel, configure_logging, redact
from .serve import serve as serve_forever
from .shard import parse_shard
from .source import configuration
from .sql_command import describe
from .state import StateDirectory
from .web import WebSettings, parse_listen_address
from .web_config import load_web_config
from .web_guard import WebGuard

app = typer.Typer(
    name="table-queue-exporter",
    help="Prometheus exporter for job tables in PostgreSQL.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"table-queue-exporter {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


@app.command()
def serve(
    config_file: ConfigFile = None,
    database_dsn: DatabaseDsn = None,
    dsn_file: DsnFile = None,
    auto_reload: Annotated[
        bool,
        typer.Option(
            "--config.auto-reload",
            envvar=ENV + "CONFIG_AUTO_RELOAD",
            help="Reload when the configuration file changes.",
        ),
    ] = False,
    shard: Annotated[
        str | None,
        typer.Option(
            "--shard",
            envvar=ENV + "SHARD",
            help="i/n: read only the databases of this one of n exporters, counted from 0.",
        ),
    ] = None,
    listen_address: Annotated[
        str,
        typer.Option(
            "--web.listen-address",
            envvar=ENV + "WEB_LISTEN_ADDRESS",
            help="host:port; :port listens on every interface.",
        ),
    ] = ":9947",
    telemetry_path: Annotated[
        str,
        typer.Option(
            "--web.telemetry-path",
            envvar=ENV + "WEB_TELEMETRY_PATH",
            help="Path of the metrics page.",
        ),
    ] = "/metrics",
    route_prefix: Annotated[
        str,
        typer.Option(
            "--web.route-prefix",
            envvar=ENV + "WEB_ROUTE_PREFIX",
            help="Put before every path.",
        ),
    ] = "",
    web_config_file: WebConfigFile = None,
    enable_lifecycle: Annotated[
        bool,
        typer.Option(
            "--web.enable-lifecycle",
            envvar=ENV + "WEB_ENABLE_LIFECYCLE",
            help="Allow POST /-/reload.",
        ),
    ] = False,
    state_dir: Annotated[
        Path | None,
        typer.Option(
            "--state.dir",
            envvar=ENV + "STATE_DIR",
            help="Keep the event counters here, so that they outlive the process.",
        ),
    ] = None,
    log_level: Level = LogLevel.INFO,
    log_format: LogForm = LogFormat.LOGFMT,
) -> None:
    """Read the queues and serve their metrics."""
    configure_logging(log_level, log_format)
    try:
        host, port = parse_listen_address(listen_address)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--web.listen-address") from error
    path = "/" + telemetry_path.strip("/")
    if path.startswith("/-/") or set(path) & set("{}?#"):
        raise typer.BadParameter(
            f"{path!r} cannot be served there", param_hint="--web.telemetry-path"
        )
    settings = WebSettings(host, port, path, _prefix(route_prefix), enable_lifecycle)
    directory = None if state_dir is None else StateDirectory(state_dir)
    try:
        part = None if shard is None else parse_shard(shard)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--shard") from error

    def load() -> Config:
        config = configuration(config_file, database_dsn, dsn_file)
        return config if part is None else part.part_of(config)

    exporter = Exporter(
        load,
        search=config_file is None,
        state_directory=directory,
    )
    if directory is not None:
        directory.open()
    guard = None if web_config_file is None else WebGuard(web_config_file)
    watched = config_file if auto_reload else None
    asyncio.run(serve_forever(exporter, settings, guard, watched))


@app.command()
def check(
    config_file: ConfigFile = None,
    web_config_file: WebConfigFile = None,
    syntax_only: Annotated[
        bool, typer.Option("--syntax-only", help="Secrets' files need not exist here.")
    ] = False,
) -> None:
    """Validate configuration files. Needs no database."""
    if config_file is None and web_config_file is None:
        raise typer.BadParameter("name a file", param_hint="--config.file")
    problems: list[Problem] = []
    lines = []
    if config_file is not None:
        try:
            config = load_config(config_file, files=not syntax_only)
        except ConfigError as error:
            problems += error.problems
        else:
            names = ", ".join(f"{queue.database}/{queue.name}" for queue in config.queues) or "none"
            databases = ", ".join(config.databases)
            lines.append(f"{config_file}: fine. Databases: {databases}. Queues: {names}.")
    if web_config_file is not None:
        try:
            web_config = load_web_config(web_config_file)
        except ConfigError as error:
            problems += error.problems
        else:
            tls = "off" if web_config.context is None else "on"
            users = ", ".join(web_config.users) or "none"
            lines.append(f"{web_config_file}: fine. TLS: {tls}. Users: {users}.")
    for line in lines:
        typer.echo(line)
    if problems:
        raise ConfigError(problems)


@app.command()
def sql(
    config_file: ConfigFile = None,
    database_dsn: DatabaseDsn = None,
    dsn_file: DsnFile = None,
    queue: Annotated[
        str | None, typer.Option("--queue", help="Only this queue; every queue without it.")
    ] = None,
    offline: Annotated[
        bool,
        typer.Option("--offline", help="Do not connect: assume every column and useful index."),
    ] = False,
) -> None:
    """Print the statements that a poll sends, ready for psql, and the GRANTs that they need."""
    config = configuration(config_file, database_dsn, dsn_file)
    typer.echo(asyncio.run(describe(config, queue, offline=offline)), nl=False)


@app.command()
def doctor(
    config_file: ConfigFile = None,
    database_dsn: DatabaseDsn = None,
    queue: Annotated[
        str | None, typer.Option("--queue", help="Only this queue; every queue without it.")
    ] = None,
    form: Annotated[
        ReportFormat, typer.Option("--format", help="A table for people, JSON for machines.")
    ] = ReportFormat.TABLE,
) -> None:
    """Tell what can be measured, at what cost, and the statements that would help. Changes nothing.

    Exit code 1 when something is found.
    """
    config = configuration(config_file, database_dsn)
    report = asyncio.run(diagnose(config, queue, search=config_file is None))
    typer.echo(redact(render(report, form)), nl=False)
    if not report.healthy:
        raise typer.Exit(1)


@app.command()
def discover(
    database_dsn: Annotated[
        str | None,
        typer.Option(
            "--database.dsn", envvar=ENV + "DATABASE_DSN", help="The database to look through."
        ),
    ] = None,
) -> None:
    """Print a configuration for the queues of a database. Reads its catalog, no table."""
    if database_dsn is None:
        raise typer.BadParameter("name the database", param_hint="--database.dsn")
    config = configuration(None, database_dsn)
    typer.echo(asyncio.run(discover_text(config)), nl=False)


@app.command()
def demo(
    fault: Annotated[
        str | None, typer.Option("--fault", help="Switch this fault on; `list` shows them all.")
    ] = None,
    duration: Annotated[
        str | None, typer.Option("--duration", help="End by itself after this, such as 30s.")
    ] = None,
    listen_address: Annotated[
        str, typer.Option("--web.listen-address", help="host:port of the exporter.")
    ] = "127.0.0.1:9947",
    database_dsn: Annotated[
        str | None,
        typer.Option(
            "--database.dsn",
            envvar="DEMO_DSN",  # not the exporter's: what it reads must not become a playground
            help="Play in this empty database instead of a private server.",
        ),
    ] = None,
    exporter: Annotated[
        bool, typer.Option("--exporter/--no-exporter", help="Whether to start an exporter too.")
    ] = True,
) -> None:
    """Run a queue with workers and faults on a private PostgreSQL, and the exporter reading it."""
    # The demo is an extra: what serves metrics must not depend on it.
    from .demo import runner
    from .demo.faults import FAULTS

    if fault == "list":
        for name, known in FAULTS.items():
            typer.echo(f"{name:<14} {known.description}")
        return
    try:
        seconds = None if duration is None else parse_duration(duration)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--duration") from error
    play = runner.run(fault or None, seconds, listen_address, dsn=database_dsn, exporter=exporter)
    raise typer.Exit(asyncio.run(play))


def _prefix(text: str) -> str:
    stripped = text.strip("/")
    return f"/{stripped}" if stripped else ""


def main() -> None:
    """Entry point. Exit codes: 0 fine, 1 a finding or failure, 2 bad usage or configuration."""
    try:
        app()
    except ConfigError as error:
        typer.echo(redact(str(error)), err=True)
        raise SystemExit(2) from None
    except ExporterError as error:
        typer.echo(f"error: {redact(str(error))}", err=True)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
