"""QueueModel: what a table must say to be a queue. Presets describe the known ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from typing import Literal, cast

import yaml

from .related import Names
from .sqltext import TableName, parse_table

AttemptsCountedAt = Literal["claim", "end", "failure"]

EXPRESSIONS = (
    "id",
    "queue",
    "task_type",
    "index_key",
    "enqueued_at",
    "enqueue_order",
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

RELATIONS = ("rows", "finished_rows")
"""What stands in FROM in the table's place: for live tasks, and for finished ones."""

Expression = str | Sequence[str]
"""SQL; ``waiting`` may be several predicates, each read by itself."""


@dataclass(frozen=True)
class Preset:
    """What one queue library's table looks like.

    ``detect`` lists columns that together tell the table apart from any other, ``named`` is what
    its name looks like, where the library does not leave it to the user: ``q_*``. ``checked`` tells
    the library's version that this was compared with, and ``notes`` what people should know.
    ``absent`` maps metrics to why the library's rows cannot tell them; ``unserved`` to the index
    that the library lacks, and that anybody may add.
    """

    name: str
    title: str
    detect: frozenset[str]
    expressions: Mapping[str, Expression]
    attempts_counted_at: AttemptsCountedAt | None
    named: str | None = None
    finishes: Mapping[str, str] = field(default_factory=dict)
    relations: Mapping[str, str] = field(default_factory=dict)
    bounded: Mapping[str, str] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)
    unserved: Mapping[str, str] = field(default_factory=dict)
    checked: str = ""
    notes: tuple[str, ...] = ()


_NONE = Preset("none", "", frozenset(), {}, None)


@dataclass(frozen=True)
class QueueModel:
    """SQL expressions that turn one table into a queue.

    ``expressions`` holds those of EXPRESSIONS that the model has. ``explicit`` names those that
    the user wrote: a column missing there is an error, while a preset's optional column that this
    table lacks just costs the metrics that need it. ``lease`` in seconds, where it is fixed.
    ``finishes`` maps outcomes to the time column that each has of its own. ``waiting_arms`` are
    the predicates that together are ``waiting``. ``bounded`` maps accesses to
    why their index may be used although it holds rows that are thrown away: other live ones, few.
    ``absent`` maps metrics to why this library's table cannot tell them. ``related`` are the tables
    that are read beside this one.
    """

    table: TableName
    preset: str
    expressions: Mapping[str, str]
    explicit: frozenset[str] = frozenset()
    attempts_counted_at: AttemptsCountedAt | None = None
    lease: float | None = None
    finishes: Mapping[str, str] = field(default_factory=dict)
    waiting_arms: tuple[str, ...] = ()
    relations: Mapping[str, str] = field(default_factory=dict)
    bounded: Mapping[str, str] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)
    related: tuple[TableName, ...] = ()

    @property
    def rows(self) -> str:
        """What live tasks are read from: the table, or what the model puts in its place."""
        return self.relations.get("rows", self.table.sql)

    @property
    def finished_rows(self) -> str:
        """What finished tasks are read from."""
        return self.relations.get("finished_rows", self.rows)

    @property
    def enqueue_order(self) -> str:
        """What sorts as the enqueue time does: that time, or a sequence that an index serves."""
        return self.get("enqueue_order") or self["enqueued_at"]

    def finish_of(self, outcome: str) -> str:
        """When a task with this outcome ended."""
        return f"({self.finishes[outcome]})" if outcome in self.finishes else self["finished_at"]

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
        return replace(self, expressions=kept)


def build_model(
    table: str,
    preset: str,
    overrides: Mapping[str, Expression | None],
    *,
    attempts_counted_at: AttemptsCountedAt | None = None,
    lease: float | None = None,
) -> QueueModel:
    """A preset (or ``none``) with a queue's own expressions and relations laid over it.

    Raises ValueError where the table's name does not tell the names of those beside it.
    """
    base = _NONE if preset == "none" else load_preset(preset)
    name = parse_table(table)
    names = Names(name, base.named)
    merged = {**base.expressions, **base.relations, **overrides}
    sql = {key: _in_place(names, text) for key, text in merged.items() if text is not None}
    waiting = sql.get("waiting", ())
    finishes = {} if "finished_at" in overrides else base.finishes
    return QueueModel(
        table=name,
        preset=preset,
        expressions={key: " OR ".join(parts) for key, parts in sql.items() if key in EXPRESSIONS},
        explicit=frozenset(key for key, text in overrides.items() if text is not None),
        attempts_counted_at=attempts_counted_at or base.attempts_counted_at,
        lease=lease,
        finishes=finishes,
        waiting_arms=tuple(waiting),
        relations={key: parts[0] for key, parts in sql.items() if key in RELATIONS},
        bounded=base.bounded,
        absent=base.absent,
        related=names.used,
    )


def _in_place(names: Names, text: Expression) -> tuple[str, ...]:
    """An expression's parts, with the names of tables put in; several are put in parentheses."""
    if isinstance(text, str) or len(text) == 1:
        return (names.put_into(text if isinstance(text, str) else text[0]),)
    return tuple(f"({names.put_into(part)})" for part in text)


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
        expressions={key: _typed(sql) for key, sql in data["expressions"].items()},
        attempts_counted_at=cast(AttemptsCountedAt | None, data.get("attempts_counted_at")),
        named=data.get("named"),
        finishes=data.get("finishes", {}),
        relations={key: str(data[key]) for key in RELATIONS if key in data},
        bounded=data.get("bounded", {}),
        absent=data.get("absent", {}),
        unserved=data.get("unserved", {}),
        checked=data["checked"],
        notes=tuple(data.get("notes", ())),
    )


def _typed(sql: object) -> Expression:
    return tuple(str(part) for part in sql) if isinstance(sql, list) else str(sql)
