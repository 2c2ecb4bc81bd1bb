"""What the doctor says: plain frozen data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Severity(StrEnum):
    """How bad a finding is. Notes are for reading only: they do not change the exit code."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class Finding:
    """One thing found. ``check`` names its kind for machines; ``queue`` is None for a database's.

    ``sql`` holds whole statements that mend it, in order, valid on that database; ``advice`` holds
    lines of worker code or of the configuration.
    """

    severity: Severity
    check: str
    database: str
    queue: str | None
    what: str
    why: str
    sql: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measurement:
    """Whether one metric can be measured; ``reason`` says why not."""

    metric: str
    measured: bool
    reason: str = ""


@dataclass(frozen=True)
class StatementCost:
    """What one generated statement costs now. ``scanned`` maps a table that is read whole to its
    bytes; ``error`` is what the server said where it did not end."""

    name: str
    pages: int | None = None
    milliseconds: float | None = None
    scanned: Mapping[str, int] = field(default_factory=dict)
    error: str = ""

    @property
    def scanned_bytes(self) -> int:
        """Bytes read by sequential scans."""
        return sum(self.scanned.values())

    def __str__(self) -> str:
        if self.pages is None or self.milliseconds is None:
            return f"{self.name}: {self.error}"
        text = f"{self.name} reads {self.pages} pages in {self.milliseconds:.1f} ms"
        if self.scanned:
            text += f", with a sequential scan over {format_bytes(self.scanned_bytes)}"
        return text


@dataclass(frozen=True)
class QueueReport:
    """One queue: what can be measured, and what that costs. Empty where it cannot be read."""

    database: str
    queue: str
    table: str
    measurements: tuple[Measurement, ...] = ()
    statements: tuple[StatementCost, ...] = ()


@dataclass(frozen=True)
class Report:
    """Everything that one run found."""

    queues: tuple[QueueReport, ...]
    findings: tuple[Finding, ...]

    @property
    def healthy(self) -> bool:
        """Whether there is nothing but notes."""
        return all(finding.severity is Severity.NOTE for finding in self.findings)


def format_bytes(size: float) -> str:
    """``16 kB``, ``3.2 MB``: as PostgreSQL counts them."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if size >= 10 or unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TB"
