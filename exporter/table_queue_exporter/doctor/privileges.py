"""Rights that are missing, with the GRANTs, and row-level security that hides rows."""

from collections.abc import Iterable

from ..config import QueueConfig
from ..inspection import used_expressions
from ..sqltext import names_in, quote_name
from .catalog import Catalog
from .findings import Finding, Severity


def privilege_findings(config: QueueConfig, catalog: Catalog) -> list[Finding]:
    """What keeps our role from reading the queue's columns. Empty when nothing does."""
    table, role = catalog.table, quote_name(catalog.role)
    used: set[str] = set().union(*(names_in(sql) for sql in used_expressions(config.model())))
    closed = [
        name for name, column in catalog.columns.items() if name in used and not column.readable
    ]
    grants = []
    if not catalog.schema_usage:
        grants.append(f"GRANT USAGE ON SCHEMA {quote_name(table.schema)} TO {role}")
    if closed:
        grants.append(f"GRANT SELECT ({_listed(closed)}) ON {table.sql} TO {role}")
    if not grants:
        return []
    missing = ["the schema"] if not catalog.schema_usage else []
    missing += [f"the columns {', '.join(closed)}"] if closed else []
    return [
        Finding(
            Severity.ERROR,
            "privileges",
            config.database,
            config.name,
            f"the role {catalog.role} may not read {' and '.join(missing)} of {table.label}",
            "without these rights every poll of the queue fails, and its gauges are absent",
            tuple(grants),
        )
    ]


def row_security_findings(config: QueueConfig, catalog: Catalog) -> list[Finding]:
    """Row-level security that applies to our role, unless a policy shows every row anyway."""
    if not catalog.row_security or catalog.open_policy:
        return []
    table, role = catalog.table, quote_name(catalog.role)
    policy = quote_name(f"{catalog.role}_reads"[:63])
    return [
        Finding(
            Severity.ERROR,
            "row_security",
            config.database,
            config.name,
            f"row-level security of {table.label} applies to the role {catalog.role}",
            "rows that no policy shows are not there for us, with no error: the queue may read as "
            "empty while tasks wait",
            (f"CREATE POLICY {policy} ON {table.sql} FOR SELECT TO {role} USING (true)",),
        )
    ]


def _listed(columns: Iterable[str]) -> str:
    return ", ".join(quote_name(column) for column in columns)
