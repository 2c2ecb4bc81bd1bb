"""Finds the tables of known presets. Reads the catalog only, no row of any table."""

from collections.abc import Iterable
from dataclasses import dataclass

from .access import Select
from .config import QueueConfig
from .model import Preset, load_preset, preset_names
from .postgres import Connection, Session
from .sqltext import TableName, quote_literal

_NAME_LENGTH = 100
"""Longest name of a queue that a configuration takes."""

USER_TABLES = (
    "c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence <> 't'\n"
    "  AND n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema'"
)
"""Over pg_class c and pg_namespace n: what may be a queue. Partitions are their parent's."""


@dataclass(frozen=True)
class Found:
    """A table that a preset describes, and a name for its queue."""

    name: str
    table: TableName
    preset: Preset


async def discover(connection: Connection, database: str, session: Session) -> list[QueueConfig]:
    """A queue for each table that a preset describes, in any schema. Raises PollError.

    The queue is named after its table, with the schema where it is not ``public``.
    """
    return [
        QueueConfig(
            name=found.name, database=database, table=found.table.sql, preset=found.preset.name
        )
        for found in await find_known(connection, session)
    ]


async def find_known(connection: Connection, session: Session) -> list[Found]:
    """Each table that a preset describes, once. Raises PollError.

    Where several presets fit, the one that tells the table apart by most columns is right:
    versions of a library share the rest.
    """
    presets = [load_preset(name) for name in preset_names() if name != "none"]
    results = await connection.run([_statement(preset) for preset in presets], session)
    best: dict[TableName, Preset] = {}
    for preset, rows in zip(presets, results, strict=True):
        for row in rows:
            table = TableName(str(row["schema"]), str(row["name"]))
            if table not in best or len(preset.detect) > len(best[table].detect):
                best[table] = preset
    tables = sorted(best, key=lambda table: (table.schema, table.name))
    return [
        Found(name, table, best[table])
        for name, table in zip(queue_names(tables), tables, strict=True)
    ]


def queue_names(tables: Iterable[TableName], taken: Iterable[str] = ()) -> list[str]:
    """A name for each table's queue, none given twice."""
    seen = set(taken)
    names = []
    for table in tables:
        name = (table.name if table.schema == "public" else table.label)[:_NAME_LENGTH]
        base, number = name, 1
        while name in seen:
            number += 1
            suffix = f"_{number}"
            name = base[: _NAME_LENGTH - len(suffix)] + suffix
        seen.add(name)
        names.append(name)
    return names


def _statement(preset: Preset) -> Select:
    columns = ", ".join(quote_literal(column) for column in sorted(preset.detect))
    named = "" if preset.named is None else f"\n  AND c.relname LIKE {_pattern(preset.named)}"
    sql = (
        f"SELECT n.nspname AS schema, c.relname AS name\n"
        f"FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace\n"
        f"WHERE {USER_TABLES}{named}\n"
        f"  AND (SELECT array_agg(a.attname::text) FROM pg_attribute a\n"
        f"       WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)\n"
        f"    @> ARRAY[{columns}]\n"
        f"ORDER BY 1, 2"
    )
    return Select(preset.name, sql)


def _pattern(named: str) -> str:
    """What a table's name looks like, for LIKE."""
    escaped = named.replace("\\", "\\\\").replace("_", "\\_").replace("%", "\\%")
    return quote_literal(escaped.replace("*", "%"))
