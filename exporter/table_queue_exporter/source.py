"""Where the configuration comes from: a file, or the address of one database."""

import sys
from pathlib import Path

import typer
from psycopg.conninfo import conninfo_to_dict
from pydantic import SecretStr

from .config import Config, DatabaseConfig, load_config
from .dsn import check_dsn, complete_dsn, has_password
from .errors import ConfigError, PollError, Problem

ENV = "TABLE_QUEUE_EXPORTER_"
"""What the names of the flags' environment twins begin with."""


def configuration(
    config_file: Path | None, dsn: str | None, dsn_file: Path | None = None
) -> Config:
    """The file's configuration, or one database with its queues yet to be found."""
    if sum(source is not None for source in (config_file, dsn, dsn_file)) > 1:
        raise typer.BadParameter(
            "give one of a file, --database.dsn and --database.dsn-file",
            param_hint="--database.dsn",
        )
    if config_file is not None:
        return load_config(config_file)
    if dsn_file is not None:
        try:
            complete = complete_dsn("", dsn_file, None, None)
        except PollError as error:
            raise ConfigError([Problem("--database.dsn-file", None, "", str(error))]) from None
        return _one_database(complete, DatabaseConfig(dsn_file=dsn_file))
    if dsn is None:
        raise typer.BadParameter(
            "name a file, or a database with --database.dsn", param_hint="--config.file"
        )
    try:
        check_dsn(dsn)
    except ValueError as error:
        raise ConfigError([Problem("--database.dsn", None, "", str(error))]) from None
    if has_password(dsn) and any(dsn in argument for argument in sys.argv):
        typer.echo(
            "warning: the password in --database.dsn shows in the list of processes; "
            f"use {ENV}DATABASE_DSN, or a file with password_file",
            err=True,
        )
    return _one_database(dsn, DatabaseConfig(dsn=SecretStr(dsn)))


def _one_database(dsn: str, database: DatabaseConfig) -> Config:
    name = conninfo_to_dict(dsn).get("dbname") or "main"
    return Config(databases={str(name): database})
