"""What the catalog says of one table and of our rights to it. Needs no privilege at all."""

from collections.abc import Mapping
from dataclasses import dataclass

from ..access import Select
from ..postgres import Connection, Session
from ..reading import number
from ..sqltext import TableName, quote_literal, quote_name


@dataclass(frozen=True)
class Column:
    """One column: its type, and whether we may read it."""

    type: str
    not_null: bool
    readable: bool


@dataclass(frozen=True)
class Leaf:
    """A table that holds rows: the table itself, or one of its partitions."""

    table: TableName
    bytes: int


@dataclass(frozen=True)
class Node:
    """One table of a partition tree; just the table itself where it has no partitions."""

    table: TableName
    parent: TableName | None
    is_leaf: bool


@dataclass(frozen=True)
class Catalog:
    """One table as the catalog describes it."""

    table: TableName
    oid: int
    kind: str
    role: str
    schema_usage: bool
    row_security: bool
    open_policy: bool
    columns: Mapping[str, Column]
    tree: tuple[Node, ...]
    leaves: tuple[Leaf, ...]

    @property
    def is_table(self) -> bool:
        """Whether it holds rows of its own: a view has no index and is not vacuumed."""
        return self.kind in ("r", "p")


async def read_catalog(
    connection: Connection, table: TableName, session: Session
) -> Catalog | None:
    """None where there is no such table. Raises PollError."""
    (found,) = await connection.run([_table(table)], session)
    if not found:
        return None
    (row,) = found
    oid = int(number(row["oid"]))
    columns, tree = await connection.run([_columns(oid), _tree(oid)], session)
    nodes = tuple(
        Node(
            TableName(str(node["schema"]), str(node["name"])),
            None
            if node["parent"] is None
            else TableName(str(node["parent_schema"]), str(node["parent"])),
            bool(node["is_leaf"]),
        )
        for node in tree
    )
    leaves = tuple(
        Leaf(node.table, int(number(size["bytes"])))
        for node, size in zip(nodes, tree, strict=True)
        if node.is_leaf
    )
    return Catalog(
        table=table,
        oid=oid,
        kind=str(row["kind"]),
        role=str(row["role"]),
        schema_usage=bool(row["schema_usage"]),
        row_security=bool(row["row_security"]),
        open_policy=bool(row["open_policy"]),
        columns={
            str(column["name"]): Column(
                str(column["type"]), bool(column["not_null"]), bool(column["readable"])
            )
            for column in columns
        },
        tree=nodes,
        leaves=leaves,
    )


async def other_schemas(connection: Connection, table: TableName, session: Session) -> list[str]:
    """Where else a table of that name stands, as SQL names."""
    sql = (
        "SELECT n.nspname AS schema FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace\n"
        f"WHERE c.relname = {quote_literal(table.name)}\n"
        "  AND c.relkind IN ('r', 'p', 'v', 'm', 'f')\n"
        "ORDER BY 1 LIMIT 5"
    )
    (rows,) = await connection.run([Select("namesakes", sql)], session)
    return [f"{quote_name(str(row['schema']))}.{quote_name(table.name)}" for row in rows]


def _table(table: TableName) -> Select:
    # Not through ::regclass, which fails in a schema that is closed to us.
    sql = f"""
SELECT c.oid::bigint AS oid, c.relkind::text AS kind, current_user::text AS role,
  has_schema_privilege(n.oid, 'USAGE') AS schema_usage,
  row_security_active(c.oid) AS row_security,
  EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid AND p.polpermissive
      AND p.polcmd IN ('r', '*') AND pg_get_expr(p.polqual, p.polrelid) = 'true'
      AND (0 = ANY (p.polroles) OR EXISTS (SELECT FROM unnest(p.polroles) AS r (id)
        WHERE r.id <> 0 AND pg_has_role(r.id, 'USAGE'))))
    AND NOT EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid AND NOT p.polpermissive
      AND p.polcmd IN ('r', '*')) AS open_policy
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = {quote_literal(table.schema)} AND c.relname = {quote_literal(table.name)}
  AND c.relkind IN ('r', 'p', 'v', 'm', 'f')"""
    return Select("table", sql.strip())


def _columns(oid: int) -> Select:
    sql = (
        "SELECT attname AS name, format_type(atttypid, NULL) AS type, attnotnull AS not_null,\n"
        "  has_column_privilege(attrelid, attnum, 'SELECT') AS readable\n"
        f"FROM pg_attribute WHERE attrelid = {oid} AND attnum > 0 AND NOT attisdropped\n"
        "ORDER BY attnum"
    )
    return Select("columns", sql)


def _tree(oid: int) -> Select:
    sql = f"""
SELECT n.nspname AS schema, c.relname AS name, pn.nspname AS parent_schema, p.relname AS parent,
  t.isleaf AS is_leaf, CASE WHEN t.isleaf THEN pg_relation_size(c.oid) ELSE 0 END AS bytes
FROM (
  SELECT relid, parentrelid, isleaf, level FROM pg_partition_tree({oid})
  UNION SELECT {oid}, NULL, true, 0 WHERE NOT EXISTS (SELECT FROM pg_partition_tree({oid}))
) t
JOIN pg_class c ON c.oid = t.relid
JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_class p ON p.oid = t.parentrelid AND t.level > 0
LEFT JOIN pg_namespace pn ON pn.oid = p.relnamespace
ORDER BY t.level, 1, 2"""
    return Select("tree", sql.strip())
