"""The flags that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from .logs import LogFormat, LogLevel
from .source import ENV

__all__ = ["ENV", "ConfigFile", "DatabaseDsn", "DsnFile", "Level", "LogForm", "WebConfigFile"]

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config.file", envvar=ENV + "CONFIG_FILE", help="The configuration, YAML."),
]
DatabaseDsn = Annotated[
    str | None,
    typer.Option(
        "--database.dsn",
        envvar=ENV + "DATABASE_DSN",
        help="Without a file: this database, and the queues of known kinds found in it.",
    ),
]
DsnFile = Annotated[
    Path | None,
    typer.Option(
        "--database.dsn-file",
        envvar=ENV + "DATABASE_DSN_FILE",
        help="Like --database.dsn, from a file that is read again at each connection.",
    ),
]
WebConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--web.config.file",
        envvar=ENV + "WEB_CONFIG_FILE",
        help="TLS and passwords, in the format of exporter-toolkit.",
    ),
]
Level = Annotated[
    LogLevel, typer.Option("--log.level", envvar=ENV + "LOG_LEVEL", help="Least level logged.")
]
LogForm = Annotated[
    LogFormat, typer.Option("--log.format", envvar=ENV + "LOG_FORMAT", help="Form of a log line.")
]
