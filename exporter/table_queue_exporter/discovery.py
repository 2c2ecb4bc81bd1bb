"""Finds the tables of known presets. Reads the catalog only, no row of any table."""

from .access import Select
from .config import QueueConfig
from .model import Preset, load_preset, preset_names
from .postgres import Connection, Session
from .sqltext import TableName, quote_literal


async def discover(connection: Connection, database: str, session: Session) -> list[QueueConfig]:
    """A queue for each table that a preset describes, in any schema. Raises PollError.

    The queue is named after its table, with the schema where it is not ``public``.
    """
    presets = [load_preset(name) for name in preset_names() if name != "none"]
    results = await connection.run([_statement(preset) for preset in presets], session)
    return [
        _queue(database, TableName(str(row["schema"]), str(row["name"])), preset)
        for preset, rows in zip(presets, results, strict=True)
        for row in rows
    ]


def _statement(preset: Preset) -> Select:
    columns = ", ".join(quote_literal(column) for column in sorted(preset.detect))
    named = "" if preset.named is None else f"\n  AND c.relname LIKE {_pattern(preset.named)}"
    sql = (
        f"SELECT n.nspname AS schema, c.relname AS name\n"
        f"FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace\n"
        f"WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition\n"
        f"  AND n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema'{named}\n"
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


def _queue(database: str, table: TableName, preset: Preset) -> QueueConfig:
    name = table.name if table.schema == "public" else table.label
    return QueueConfig(name=name, database=database, table=table.sql, preset=preset.name)
