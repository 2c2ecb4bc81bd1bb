"""One index as statements, and how large it would be."""

import re
from dataclasses import dataclass
from typing import cast

from ..access import Select
from ..postgres import Connection, Session
from ..reading import Row, number
from ..sqltext import TableName, names_in, quote_literal, quote_name
from .catalog import Catalog
from .indexable import is_column

_PAGE = 8192
_FILL = 0.9
_ENTRY = 8 + 4
"""Bytes of an entry beside its values: header and line pointer."""
_UNKNOWN_WIDTH = 16
_WIDTHS = {
    "smallint": 2, "integer": 4, "bigint": 8, "boolean": 1, "uuid": 16, "date": 4,
    "timestamp with time zone": 8, "timestamp without time zone": 8,
}  # fmt: skip
_NAME_BYTES = 63


@dataclass(frozen=True)
class Index:
    """An index to be made. Keys, included columns and predicate are SQL over the table."""

    suffix: str
    keys: tuple[str, ...]
    include: tuple[str, ...]
    where: str | None

    @property
    def texts(self) -> tuple[str, ...]:
        """Its expressions."""
        return self.keys if self.where is None else (*self.keys, self.where)

    def definition(self, columns: set[str]) -> str:
        """What follows the table's name. A key that stands twice is held once."""
        keys = list(dict.fromkeys(self.keys))
        listed = ", ".join(key if is_column(key, columns) else f"({key})" for key in keys)
        include = [name for name in dict.fromkeys(self.include) if name not in keys]
        text = f"({listed})"
        if include:
            text += f" INCLUDE ({', '.join(include)})"
        return text if self.where is None else f"{text} WHERE {self.where}"


@dataclass(frozen=True)
class Existing:
    """A valid index as PostgreSQL tells it back: its keys and its predicate."""

    keys: tuple[str, ...]
    where: str | None

    def serves(self, wanted: Index) -> bool:
        """Whether it begins with the wanted keys and leaves out no row that is wanted."""
        keys = [_normal(key) for key in dict.fromkeys(wanted.keys)]
        same = [_normal(key) for key in self.keys[: len(keys)]] == keys
        return same and (
            self.where is None
            or (wanted.where is not None and _normal(self.where) == _normal(wanted.where))
        )


_QUOTED_OR_NOISE = re.compile(r"('(?:[^']|'')*')(?:::[a-z_]+(?:\([0-9, ]*\))?)?|[\s()]")


def _normal(sql: str) -> str:
    """SQL without what PostgreSQL adds when it tells an expression back, good enough to compare."""
    return _QUOTED_OR_NOISE.sub(lambda match: match[1] or "", sql).lower()


async def existing_indexes(
    connection: Connection, catalog: Catalog, session: Session
) -> list[Existing]:
    """The valid indexes of the table itself. Raises PollError."""
    sql = f"""
SELECT ARRAY(SELECT pg_get_indexdef(i.indexrelid, k, true)
  FROM generate_series(1, i.indnkeyatts) AS k) AS keys, pg_get_expr(i.indpred, i.indrelid) AS pred
FROM pg_index i WHERE i.indrelid = {catalog.oid} AND i.indisvalid"""
    (rows,) = await connection.run([Select("indexes", sql.strip())], session)
    return [
        Existing(
            tuple(str(key) for key in cast(list[object], row["keys"])),
            None if row["pred"] is None else str(row["pred"]),
        )
        for row in rows
    ]


async def create_statements(
    connection: Connection, catalog: Catalog, index: Index, session: Session
) -> list[str]:
    """The statements that make an index without blocking the workers. Raises PollError.

    A partitioned table takes none concurrently: each partition gets its own, which is then
    attached to an index of the parent that is made of nothing.
    """
    definition = index.definition(set(catalog.columns))
    names = await _free_names(connection, catalog, index.suffix, session)
    statements = []
    for node in catalog.tree:
        name, table = quote_name(names[node.table]), node.table.sql
        if node.is_leaf:
            statements.append(f"CREATE INDEX CONCURRENTLY {name} ON {table} {definition}")
        else:
            statements.append(f"CREATE INDEX {name} ON ONLY {table} {definition}")
    for node in reversed(catalog.tree):
        if node.parent is not None:
            parent = f"{quote_name(node.parent.schema)}.{quote_name(names[node.parent])}"
            child = f"{quote_name(node.table.schema)}.{quote_name(names[node.table])}"
            statements.append(f"ALTER INDEX {parent} ATTACH PARTITION {child}")
    return statements


async def _free_names(
    connection: Connection, catalog: Catalog, suffix: str, session: Session
) -> dict[TableName, str]:
    """A name for the index on each table that nothing else in its schema has."""
    candidates = {
        node.table: [_named(node.table.name, f"{suffix}{n}") for n in ("", *map(str, range(2, 10)))]
        for node in catalog.tree
    }
    pairs = ", ".join(
        f"({quote_literal(table.schema)}, {quote_literal(name)})"
        for table, names in candidates.items()
        for name in names
    )
    sql = (
        "SELECT n.nspname AS schema, c.relname AS name FROM pg_class c\n"
        "JOIN pg_namespace n ON n.oid = c.relnamespace\n"
        f"WHERE (n.nspname::text, c.relname::text) IN ({pairs})"
    )
    (rows,) = await connection.run([Select("names", sql)], session)
    taken = {(str(row["schema"]), str(row["name"])) for row in rows}
    chosen: dict[TableName, str] = {}
    for table, names in candidates.items():
        free = [name for name in names if (table.schema, name) not in taken]
        chosen[table] = free[0] if free else names[-1]
        taken.add((table.schema, chosen[table]))
    return chosen


def _named(table: str, suffix: str) -> str:
    """``table_suffix``, short enough for PostgreSQL, cut on a character boundary."""
    room = _NAME_BYTES - len(suffix.encode()) - 1
    return f"{table.encode()[:room].decode(errors='ignore')}_{suffix}"


async def estimate(connection: Connection, catalog: Catalog, index: Index, session: Session) -> int:
    """Bytes that an index would take, by the planner's estimate of its rows. Raises PollError."""
    condition = "" if index.where is None else f" WHERE {index.where}"
    explain = Select("rows", f"EXPLAIN (FORMAT JSON) SELECT 1 FROM {catalog.table.sql}{condition}")
    widths = Select(
        "widths",
        "SELECT attname AS name, max(avg_width) AS width FROM pg_stats\n"
        f"WHERE schemaname = {quote_literal(catalog.table.schema)} "
        f"AND tablename = {quote_literal(catalog.table.name)} GROUP BY 1",
    )
    plans, known = await connection.run([explain, widths], session)
    (plan,) = cast(list[Row], plans[0]["QUERY PLAN"])
    rows = number(cast(Row, plan["Plan"])["Plan Rows"])
    measured = {str(row["name"]): int(number(row["width"])) for row in known}
    width = 0
    for text in dict.fromkeys((*index.keys, *index.include)):
        width += max((_width(catalog, name, measured) for name in names_in(text)), default=8)
    entry = _ENTRY + (width + 7) // 8 * 8
    pages = 1 + max(round(rows * entry / _FILL / _PAGE + 0.5), 1)
    return pages * _PAGE


def _width(catalog: Catalog, column: str, measured: dict[str, int]) -> int:
    if column in measured:
        return measured[column]
    found = catalog.columns.get(column)
    return _WIDTHS.get(found.type, _UNKNOWN_WIDTH) if found else _UNKNOWN_WIDTH
