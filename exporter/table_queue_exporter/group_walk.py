"""SQL that splits a table by queue and task type without reading it all."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .access import Shape
from .model import QueueModel

MAX_GROUPS = 1000
"""Groups walked in one statement; what lies beyond is not reached, and said so."""
LABEL_CHARACTERS = 129
"""One more than a label may have bytes: enough to cut it, and 10 kB task types exist."""


def epoch(time: str) -> str:
    """A time as unix seconds; a `timestamp` without zone is read in the session's zone."""
    return f"extract(epoch FROM ({time})::timestamptz)::float8"


def age(time: str) -> str:
    """Seconds since a time. Never subtracts timestamps: that fails for infinite ones."""
    return f"(extract(epoch FROM now())::float8 - {epoch(time)})"


def label(value: str) -> str:
    """A label's value: text, and no longer than a label may be (10 kB task types exist)."""
    return f"left(({value})::text, {LABEL_CHARACTERS})"


@dataclass(frozen=True)
class Arm:
    """One way into the groups: the CTEs that walk them, and how a row belongs to a group."""

    ctes: tuple[str, ...]
    source: str
    match: Callable[[str], str]
    labels: dict[str, str]
    limited: tuple[str, ...] = ()
    part: int = 0
    """Which predicate this arm is of."""


def _always(predicate: str) -> Callable[[str], str]:
    return lambda alias: predicate


class GroupWalk:
    """Walks the groups of one table: values of its queue column and its task types."""

    def __init__(self, model: QueueModel, shape: Shape, rows: str | None = None) -> None:
        self._model = model
        self._shape = shape
        self.table = rows or model.rows
        self.keys = [key for key in ("queue", "task_type") if model.get(key)]
        self.walk_keys = [*self.keys, *(["index_key"] if model.get("index_key") else [])]

    def arms(self, where: Mapping[int, str], keys: list[str]) -> list[Arm]:
        """Walks the distinct values of the keys, one index probe each; NULLs in arms of their own.

        A recursive loose index scan: the first value, then again and again the next one above it.
        Each predicate of ``where`` is walked by itself: a group may show up once for each.
        """
        arms = [
            Arm((), "(SELECT 1) AS g", _always(predicate), {}, part=part)
            for part, predicate in where.items()
        ]
        for key in keys:
            arms = [new for arm in arms for new in self._split(arm, key)]
        return arms

    def _split(self, arm: Arm, key: str) -> list[Arm]:
        column = self._model[key]
        walk = f"walk_{arm.part}_{key}_{'_'.join(arm.labels) or 'all'}_{len(arm.ctes)}"
        prior = "".join(f"{{alias}}.{name}, " for name in arm.labels if arm.labels[name] != "NULL")

        def first(alias: str, above: str) -> str:
            return (
                f"SELECT {column} AS {key} FROM {self.table}\n"
                f"      WHERE {arm.match(alias)} AND {column} {above}\n"
                f"      ORDER BY {column} LIMIT 1"
            )

        cte = (
            f"{walk} AS (\n"
            f"  SELECT {prior.format(alias='g')}f.{key} FROM {arm.source}\n"
            f"    CROSS JOIN LATERAL ({first('g', 'IS NOT NULL')}) f\n"
            f"  UNION ALL\n"
            f"  SELECT {prior.format(alias='w')}n.{key} FROM {walk} w\n"
            f"    CROSS JOIN LATERAL ({first('w', f'> w.{key}')}) n\n"
            f")"
        )
        groups = f"groups_{walk} AS MATERIALIZED (SELECT * FROM {walk} LIMIT {MAX_GROUPS + 1})"
        value = Arm(
            (*arm.ctes, cte, groups),
            f"groups_{walk} AS g",
            lambda alias: f"{arm.match(alias)} AND {column} = {alias}.{key}",
            {**arm.labels, key: f"g.{key}"},
            (*arm.limited, f"groups_{walk}"),
            arm.part,
        )
        if key not in self._shape.nullable:
            return [value]
        null = Arm(
            arm.ctes,
            arm.source,
            lambda alias: f"{arm.match(alias)} AND {column} IS NULL",
            {**arm.labels, key: "NULL"},
            arm.limited,
            arm.part,
        )
        return [value, null]

    def walked(self, where: Mapping[int, str], keys: list[str], body: Callable[[Arm], str]) -> str:
        """A statement that evaluates ``body`` for each group of each arm."""
        arms = self.arms(where, keys)
        ctes = list(dict.fromkeys(cte for arm in arms for cte in arm.ctes))
        head = "WITH RECURSIVE " + ",\n".join(ctes) + "\n" if ctes else ""
        return head + "\nUNION ALL\n".join(body(arm) for arm in arms)

    def labels(self, arm_labels: dict[str, str]) -> str:
        """The two label columns of a row; NULL where the model has no such key."""
        return ", ".join(
            f"{label(arm_labels[key]) if key in arm_labels else 'NULL::text'} AS {key}"
            for key in ("queue", "task_type")
        )

    @staticmethod
    def all_groups(arm: Arm) -> str:
        """Whether the walk reached every group."""
        if not arm.limited:
            return "true AS all_groups"
        counts = " AND ".join(
            f"(SELECT count(*) <= {MAX_GROUPS} FROM {name})" for name in arm.limited
        )
        return f"{counts} AS all_groups"

    def over(self, rows: str) -> "GroupWalk":
        """The same groups in another relation."""
        return GroupWalk(self._model, self._shape, rows)

    def listed(
        self, columns: str, where: str, order: str, limit: int, rows: str | None = None
    ) -> str:
        """A bounded read of rows with their groups, for where no index walks the groups."""
        labels = ", ".join(
            f"{self._model[key] if key in self.keys else 'NULL::text'} AS {key}"
            for key in ("queue", "task_type")
        )
        return (
            f"SELECT {labels}, {columns}\n  FROM {rows or self.table}\n"
            f"  WHERE {where}{order}\n  LIMIT {limit + 1}"
        )
