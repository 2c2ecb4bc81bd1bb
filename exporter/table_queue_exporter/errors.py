"""Every error this program raises on purpose.

ExporterError
├── ConfigError      the configuration cannot be used; exit code 2
└── PollError        one reading of one queue failed; the queue is absent until one succeeds
"""

from dataclasses import dataclass
from enum import StrEnum


class ExporterError(Exception):
    """Root of the tree. Its text is written for the person at the terminal."""


@dataclass(frozen=True)
class Problem:
    """One thing wrong in a configuration file.

    ``line`` counts from 1 and is None where no line is known; ``path`` is the key's path,
    such as ``queues[0].lease``.
    """

    file: str
    line: int | None
    path: str
    message: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.path}: {self.message}" if self.path else f"{place}: {self.message}"


class ConfigError(ExporterError):
    """The configuration cannot be used. Holds every problem that was found, not just the first."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


class Reason(StrEnum):
    """Why a poll failed: the label ``reason`` of ``table_queue_poll_errors_total``."""

    CONNECTION = "connection"
    TIMEOUT = "timeout"
    LOCK_TIMEOUT = "lock_timeout"
    CONFLICT = "conflict"
    PERMISSION = "permission"
    UNDEFINED_OBJECT = "undefined_object"
    DATA = "data"
    CANCELLED = "cancelled"
    OTHER = "other"


class PollError(ExporterError):
    """One reading failed. ``reason`` classifies it; the text says what to do next."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
