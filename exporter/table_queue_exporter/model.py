"""QueueModel: what a table must say to be a queue. Presets describe the known ones."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal, cast

import yaml

from .sqltext import TableName, parse_table

AttemptsCountedAt = Literal["claim", "end", "failure"]

EXPRESSIONS = (
    "id",
    "queue",
    "task_type",
    "enqueued_at",
    "due_at",
    "lease_until",
    "started_at",
    "finished_at",
    "attempts",
    "claim_stamp",
    "error",
    "waiting",
    "blocked",
    "processing",
    "done",
    "failed",
    "cancelled",
)
"""Every part of a model that is an SQL expression over the table's columns."""

REQUIRED = ("enqueued_at", "waiting")
"""Without these a table is no queue."""


@dataclass(frozen=True)
class Preset:
    """What one queue library's table looks like.

    ``detect`` lists columns that together tell the table apart from any other.
    """

    name: str
    title: str
    detect: frozenset[str]
    expressions: Mapping[str, str]
    attempts_counted_at: AttemptsCountedAt | None


@dataclass(frozen=True)
class QueueModel:
    """SQL expressions that turn one table into a queue.

    ``expressions`` holds those of EXPRESSIONS that the model has. ``explicit`` names those that
    the user wrote: a column missing there is an error, while a preset's optional column that this
    table lacks just costs the metrics that need it. ``lease`` in seconds, where it is fixed.
    """

    table: TableName
    preset: str
    expressions: Mapping[str, str]
    explicit: frozenset[str] = frozenset()
    attempts_counted_at: AttemptsCountedAt | None = None
    lease: float | None = None

    def get(self, name: str) -> str | None:
        """The expression of that name in parentheses, None where the model has none."""
        expression = self.expressions.get(name)
        return None if expression is None else f"({expression})"

    def __getitem__(self, name: str) -> str:
        return f"({self.expressions[name]})"

    @property
    def lease_until(self) -> str | None:
        """When a claimed task's lease ends: its column, or the start plus a fixed lease."""
        stored, started = self.get("lease_until"), self.get("started_at")
        if stored is None and started is not None and self.lease is not None:
            return f"({started} + interval '{self.lease} seconds')"
        return stored

    @property
    def started_at(self) -> str | None:
        """When the running attempt began: its column, or the lease's end less a fixed lease."""
        stored, until = self.get("started_at"), self.get("lease_until")
        if stored is None and until is not None and self.lease is not None:
            return f"({until} - interval '{self.lease} seconds')"
        return stored

    def without(self, names: frozenset[str]) -> "QueueModel":
        """The model without those optional expressions."""
        kept = {name: sql for name, sql in self.expressions.items() if name not in names}
        return QueueModel(
            self.table, self.preset, kept, self.explicit, self.attempts_counted_at, self.lease
        )


def build_model(
    table: str,
    preset: str,
    overrides: Mapping[str, str | None],
    *,
    attempts_counted_at: AttemptsCountedAt | None = None,
    lease: float | None = None,
) -> QueueModel:
    """A preset (or ``none``) with a queue's own expressions laid over it."""
    base = Preset("none", "", frozenset(), {}, None) if preset == "none" else load_preset(preset)
    merged = {**base.expressions, **overrides}
    return QueueModel(
        table=parse_table(table),
        preset=preset,
        expressions={name: sql for name, sql in merged.items() if sql is not None},
        explicit=frozenset(name for name, sql in overrides.items() if sql is not None),
        attempts_counted_at=attempts_counted_at or base.attempts_counted_at,
        lease=lease,
    )


@cache
def preset_names() -> tuple[str, ...]:
    """The presets that ship with the exporter, and ``none``."""
    files = resources.files(__package__).joinpath("presets").iterdir()
    names = sorted(f.name.removesuffix(".yaml") for f in files if f.name.endswith(".yaml"))
    return (*names, "none")


@cache
def load_preset(name: str) -> Preset:
    """A preset by its name. Raises KeyError-like errors only for a file that we shipped broken."""
    text = resources.files(__package__).joinpath("presets", f"{name}.yaml").read_text("utf-8")
    data = yaml.safe_load(text)
    return Preset(
        name=name,
        title=data["title"],
        detect=frozenset(data["detect"]),
        expressions={key: str(sql) for key, sql in data["expressions"].items()},
        attempts_counted_at=cast(AttemptsCountedAt | None, data.get("attempts_counted_at")),
    )
