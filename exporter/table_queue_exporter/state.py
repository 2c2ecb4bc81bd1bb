"""Counters that outlive the process: one file per queue, saved before its values are seen.

A counter that Prometheus has seen must never step back: it would take that for a restart and count
the whole value again. So a state is written to a temporary file, synced, renamed into place, and
only then published.
"""

import fcntl
import hashlib
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import structlog
from pydantic import TypeAdapter, ValidationError

from .errors import ExporterError
from .event_layout import Layout
from .events import EventState
from .labels import SavedLabels

log = structlog.get_logger()

VERSION = 1


@dataclass(frozen=True)
class Saved:
    """What a file holds. Another table or layout makes it a foreign one."""

    version: int
    database: str
    queue: str
    table: str
    layout: Layout
    labels: SavedLabels
    events: EventState


class StateError(ExporterError):
    """A state cannot be saved; the counters stand still until it can."""


class StateDirectory:
    """The directory of --state.dir. One process may use it at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock: IO[bytes]

    def open(self) -> None:
        """Takes the directory. Raises ExporterError when it cannot be used or is taken."""
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            self._lock = (self._path / "lock").open("ab")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise ExporterError(
                f"{self._path} is used by another exporter; give each its own --state.dir"
            ) from None
        except OSError as error:
            raise ExporterError(f"--state.dir {self._path}: {error.strerror}") from error

    def close(self) -> None:
        """Gives the directory back."""
        self._lock.close()

    def file(self, database: str, queue: str) -> Path:
        """The file of one queue: a readable name, and a digest that keeps it apart."""
        digest = hashlib.sha256(f"{database}\0{queue}".encode()).hexdigest()[:12]
        readable = re.sub(r"[^A-Za-z0-9_.-]+", "_", f"{database}-{queue}")[:80]
        return self._path / f"{readable}-{digest}.json"

    def load(self, database: str, queue: str, table: str) -> Saved | None:
        """A queue's state; None where there is none. A damaged or foreign one is set aside."""
        path = self.file(database, queue)
        try:
            saved = _ADAPTER.validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValidationError, ValueError) as error:
            self._set_aside(path, f"it is damaged ({type(error).__name__})")
            return None
        if (saved.version, saved.database, saved.queue) != (VERSION, database, queue):
            self._set_aside(path, "it is another version's, or another queue's")
            return None
        if saved.table != table:
            self._set_aside(path, f"it counted another table, {saved.table}")
            return None
        return saved

    def _set_aside(self, path: Path, reason: str) -> None:
        aside = path.with_suffix(f".set-aside-{time.time_ns()}")
        log.error(
            "state file set aside; its counters start at 0",
            file=str(path),
            reason=reason,
            kept_as=aside.name,
        )
        try:
            path.rename(aside)
        except OSError as error:
            log.error("it cannot even be renamed", file=str(path), error=error.strerror)

    def save(self, saved: Saved) -> None:
        """Writes a state so that either the old or the new one is there, whatever happens.

        Raises StateError.
        """
        path = self.file(saved.database, saved.queue)
        temporary = path.with_suffix(".new")
        try:
            with temporary.open("wb") as file:
                file.write(_ADAPTER.dump_json(saved))
                file.flush()
                os.fsync(file.fileno())
            temporary.rename(path)
            directory = os.open(self._path, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        except OSError as error:
            raise StateError(f"{path}: {error.strerror}") from error


_ADAPTER = TypeAdapter(Saved)
