"""Statements about the table and the database as a whole, and how their rows are read."""

from . import metrics
from .access import Select
from .metrics import Metric
from .model import QueueModel
from .reading import DatabaseReading, Row, TableReading, number
from .sqltext import quote_literal


def table_statement(model: QueueModel) -> Select:
    """Size and row estimates of a table, summed over its leaf partitions."""
    table = f"{quote_literal(model.table.sql)}::regclass"
    sql = (
        f"WITH leaves AS (\n"
        f"  SELECT relid FROM pg_partition_tree({table}) WHERE isleaf\n"
        f"  UNION SELECT {table}\n"
        f")\n"
        f"SELECT pg_is_in_recovery() AS in_recovery, "
        f"sum(pg_total_relation_size(relid))::float8 AS table_bytes, "
        f"sum(s.n_dead_tup)::float8 AS dead_rows, sum(s.n_live_tup)::float8 AS live_rows, "
        f"CASE WHEN count(*) = count(s.last_autovacuum) "
        f"THEN extract(epoch FROM min(s.last_autovacuum))::float8 END AS last_autovacuum,\n  "
        f"jsonb_object_agg(relid::oid::text, ARRAY[s.n_tup_ins, s.n_tup_del])\n  "
        f"  FILTER (WHERE s.relid IS NOT NULL) AS row_counts\n"
        f"FROM leaves JOIN pg_class c ON c.oid = relid AND c.relkind <> 'p'\n"
        f"LEFT JOIN pg_stat_all_tables s USING (relid)"
    )
    return Select("table", sql)


def read_table(model: QueueModel, row: Row) -> TableReading:
    """On a standby the statistics read 0: they are left out."""
    columns = {metrics.TABLE_BYTES: "table_bytes"}
    if not row["in_recovery"]:
        columns |= {
            metrics.DEAD_ROWS: "dead_rows",
            metrics.LIVE_ROWS: "live_rows",
            metrics.LAST_AUTOVACUUM: "last_autovacuum",
        }
    values = {
        metric: number(row[column]) for metric, column in columns.items() if row[column] is not None
    }
    counts = row["row_counts"]
    leaves = {}
    if isinstance(counts, dict) and not row["in_recovery"]:
        leaves = {str(oid): (int(pair[0]), int(pair[1])) for oid, pair in counts.items()}
    return TableReading(model.table.label, values, leaves)


DATABASE_STATEMENT = Select(
    "database",
    """
SELECT pg_is_in_recovery() AS in_recovery,
  pg_has_role('pg_read_all_stats', 'USAGE') AS sees_sessions,
  coalesce(s.age, 0) AS session_age, coalesce(s.seconds, 0) AS session_seconds,
  coalesce(p.age, 0) AS prepared_age, coalesce(p.seconds, 0) AS prepared_seconds,
  coalesce((SELECT max(age(xmin)) FROM pg_replication_slots WHERE slot_type = 'physical'), 0)
    AS slot_age,
  coalesce((SELECT max(age(backend_xmin)) FROM pg_stat_replication), 0) AS standby_age
FROM (
  SELECT max(greatest(age(backend_xmin), age(backend_xid))) AS age,
    max(extract(epoch FROM now() - xact_start))::float8 AS seconds
  FROM pg_stat_activity
  WHERE datname = current_database() AND pid <> pg_backend_pid()
    AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
    AND backend_type NOT IN ('walsender', 'autovacuum worker')
) s
CROSS JOIN (
  SELECT max(age(transaction)) AS age, max(extract(epoch FROM now() - prepared))::float8 AS seconds
  FROM pg_prepared_xacts WHERE database = current_database()
) p
""".strip(),
)
"""Who holds the xmin horizon of this database.

An idle writer has only ``backend_xid``. A transaction in another database does not block vacuum
here, nor does a logical slot (it holds ``catalog_xmin``), nor another vacuum.
"""

_HOLDERS: tuple[tuple[Metric, str, str], ...] = (
    (metrics.XMIN_HORIZON_TRANSACTIONS, "session", "session_age"),
    (metrics.XMIN_HORIZON_TRANSACTIONS, "prepared", "prepared_age"),
    (metrics.XMIN_HORIZON_TRANSACTIONS, "slot", "slot_age"),
    (metrics.XMIN_HORIZON_TRANSACTIONS, "standby", "standby_age"),
    (metrics.XMIN_HORIZON_SECONDS, "session", "session_seconds"),
    (metrics.XMIN_HORIZON_SECONDS, "prepared", "prepared_seconds"),
)


def read_database(row: Row) -> DatabaseReading:
    """Other sessions read as NULL without pg_read_all_stats: unknown is absent, not 0."""
    hidden = () if row["sees_sessions"] else ("session", "standby")
    horizon = {
        (metric, holder): max(number(row[column]), 0)
        for metric, holder, column in _HOLDERS
        if holder not in hidden
    }
    return DatabaseReading(bool(row["in_recovery"]), horizon)
