"""Structured logs on standard error, as logfmt or JSON, with secrets taken out."""

import logging
import sys
from collections.abc import Iterable
from enum import StrEnum

import structlog
from structlog.typing import EventDict, WrappedLogger

REDACTED = "<redacted>"


class LogFormat(StrEnum):
    """Values of --log.format."""

    LOGFMT = "logfmt"
    JSON = "json"


class LogLevel(StrEnum):
    """Values of --log.level."""

    DEBUG = "debug"
    INFO = "info"
    WARN = "warn"
    ERROR = "error"


class Redactor:
    """Takes every known secret out of texts. One instance serves logs and pages."""

    def __init__(self) -> None:
        self._secrets: set[str] = set()

    def add(self, secrets: Iterable[str]) -> None:
        """Makes secrets known; empty ones are passed over."""
        self._secrets |= {secret for secret in secrets if secret}

    def __call__(self, text: str) -> str:
        """The text with every known secret replaced."""
        for secret in sorted(self._secrets, key=len, reverse=True):
            text = text.replace(secret, REDACTED)
        return text

    def process(self, logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
        """A structlog processor."""
        for key, value in event.items():
            if value is not None and not isinstance(value, bool | int | float):
                event[key] = self(str(value))
        return event


redact = Redactor()
"""The process's redactor."""


def _printable(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Control characters, escaped: a server's message may quote any value of a row."""
    for key, value in event.items():
        if isinstance(value, str) and not value.isprintable():
            event[key] = "".join(
                c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode()
                for c in value
            )
    return event


def configure_logging(level: LogLevel, log_format: LogFormat) -> None:
    """Sets up structlog for the process. Lines go to standard error."""
    renderer = (
        structlog.processors.JSONRenderer()
        if log_format is LogFormat.JSON
        else structlog.processors.LogfmtRenderer(
            key_order=["ts", "level", "msg"], drop_missing=True, bool_as_flag=False
        )
    )
    threshold = logging.WARNING if level is LogLevel.WARN else getattr(logging, level.upper())
    structlog.configure(
        processors=[
            structlog.stdlib.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", key="ts"),
            structlog.processors.format_exc_info,
            structlog.processors.EventRenamer("msg"),
            redact.process,
            *([] if log_format is LogFormat.JSON else [_printable]),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )
