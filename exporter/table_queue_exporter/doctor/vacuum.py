"""Dead rows: autovacuum settings that are too lazy for a queue, and who holds vacuum back."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..access import Select
from ..durations import format_duration
from ..postgres import Connection, Session
from ..reading import Row, number
from ..sqltext import TableName, quote_literal
from .catalog import Catalog
from .findings import Finding, Severity
from .subject import Subject

LAZY_DEAD_ROWS = 20_000
"""Dead rows that a queue should not gather before it is vacuumed: each claim steps over them."""
GOOD_DEAD_ROWS = 5_000
LONG_HOLD = 300.0
"""Seconds of a held horizon from which it is a warning: a queue makes dead rows all the time."""
_FAR_BEHIND = 2
"""A table with this many times its trigger in dead rows is not being vacuumed in time."""


@dataclass(frozen=True)
class Vacuuming:
    """When autovacuum would come to one table, and what waits for it."""

    table: TableName
    enabled: bool
    vacuum_at: float
    analyze_at: float
    dead_rows: float | None


async def vacuum_findings(subject: Subject) -> list[Finding]:
    """The queue's own tables, each partition by itself. Raises PollError."""
    if not subject.catalog.is_table:
        return []
    (rows,) = await subject.connection.run([_settings(subject.catalog)], subject.session)
    return [finding for row in rows for finding in judge_vacuuming(subject, _read(row))]


def _settings(catalog: Catalog) -> Select:
    names = ("vacuum_threshold", "vacuum_scale_factor", "analyze_threshold", "analyze_scale_factor")
    defaults = ", ".join(
        f"current_setting('autovacuum_{name}')::float8 AS default_{name}" for name in names
    )
    sql = f"""
SELECT n.nspname AS schema, c.relname AS name, greatest(c.reltuples, 0)::float8 AS live,
  current_setting('autovacuum') = 'on' AS running, {defaults},
  coalesce(nullif(current_setting('autovacuum_vacuum_max_threshold', true), ''), '-1')::float8
    AS most,
  (SELECT jsonb_object_agg(option_name, option_value) FROM pg_options_to_table(c.reloptions))
    AS options,
  CASE WHEN NOT pg_is_in_recovery() THEN s.n_dead_tup END AS dead_rows
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_stat_all_tables s ON s.relid = c.oid
WHERE c.relkind = 'r' AND (c.oid = {catalog.oid}
  OR c.oid IN (SELECT relid FROM pg_partition_tree({catalog.oid}) WHERE isleaf))
ORDER BY 1, 2"""
    return Select("autovacuum", sql.strip())


def _read(row: Row) -> Vacuuming:
    options = row["options"] if isinstance(row["options"], Mapping) else {}

    def setting(name: str) -> float:
        own = options.get(f"autovacuum_{name}")
        return float(str(own)) if own is not None else number(row[f"default_{name}"])

    live = number(row["live"])
    vacuum_at = setting("vacuum_threshold") + setting("vacuum_scale_factor") * live
    most = float(str(options.get("autovacuum_vacuum_max_threshold", row["most"])))
    switched = str(options.get("autovacuum_enabled", "true")).lower()
    return Vacuuming(
        TableName(str(row["schema"]), str(row["name"])),
        bool(row["running"]) and switched in ("true", "on", "yes", "1"),
        min(vacuum_at, most) if most >= 0 else vacuum_at,
        setting("analyze_threshold") + setting("analyze_scale_factor") * live,
        None if row["dead_rows"] is None else number(row["dead_rows"]),
    )


def judge_vacuuming(subject: Subject, found: Vacuuming) -> list[Finding]:
    """What is wrong with one table's settings."""
    table = found.table
    if not found.enabled:
        return [
            subject.finding(
                Severity.ERROR,
                "autovacuum_off",
                f"autovacuum is off for {table.label}",
                "every change of status leaves a dead row, and claims step over all of them",
                sql=[f"ALTER TABLE {table.sql} SET (autovacuum_enabled = true)"],
                advice=["and in postgresql.conf: autovacuum = on"],
            )
        ]
    findings = []
    if found.vacuum_at > LAZY_DEAD_ROWS or found.analyze_at > LAZY_DEAD_ROWS * 5:
        findings.append(
            subject.finding(
                Severity.WARNING,
                "autovacuum_lazy",
                f"autovacuum comes to {table.label} after {found.vacuum_at:,.0f} dead rows",
                "the share of a table that is mostly finished tasks grows with it, while its live "
                "part stays small: claims and polls step over that many dead rows",
                sql=[
                    f"ALTER TABLE {table.sql} SET (autovacuum_vacuum_scale_factor = 0, "
                    f"autovacuum_vacuum_threshold = {GOOD_DEAD_ROWS}, "
                    "autovacuum_analyze_scale_factor = 0, "
                    f"autovacuum_analyze_threshold = {GOOD_DEAD_ROWS})"
                ],
            )
        )
    dead = found.dead_rows
    if dead is not None and dead > max(_FAR_BEHIND * found.vacuum_at, LAZY_DEAD_ROWS):
        findings.append(
            subject.finding(
                Severity.WARNING,
                "dead_rows",
                f"{table.label} holds {dead:,.0f} dead rows",
                f"autovacuum should have come at {found.vacuum_at:,.0f}: it is too slow, or "
                "something holds the xmin horizon",
                sql=[f"VACUUM (ANALYZE) {table.sql}"],
            )
        )
    return findings


# --- the horizon --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Holder:
    """What keeps dead rows from being removed. ``seconds`` is None where no time is known."""

    kind: str
    key: str
    description: str
    transactions: int
    seconds: float | None
    can_be_ended: bool = True


_HOLDERS = Select(
    "holders",
    """
(SELECT 'session' AS kind, pid::text AS key,
  concat_ws(', ', usename, nullif(application_name, ''), state) AS description,
  greatest(age(backend_xmin), age(backend_xid)) AS age,
  extract(epoch FROM now() - xact_start)::float8 AS seconds, true AS can_be_ended
FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
  AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
  AND backend_type NOT IN ('walsender', 'autovacuum worker')
ORDER BY xact_start LIMIT 3)
UNION ALL
(SELECT 'prepared', gid, owner::text, age(transaction),
  extract(epoch FROM now() - prepared)::float8, true
FROM pg_prepared_xacts WHERE database = current_database() ORDER BY prepared LIMIT 3)
UNION ALL
(SELECT 'slot', slot_name::text, CASE WHEN active THEN 'in use' ELSE 'unused' END, age(xmin),
  NULL, NOT active
FROM pg_replication_slots WHERE slot_type = 'physical' AND xmin IS NOT NULL
ORDER BY age(xmin) DESC LIMIT 3)
UNION ALL
(SELECT 'standby', pid::text, application_name, age(backend_xmin), NULL, false
FROM pg_stat_replication WHERE backend_xmin IS NOT NULL ORDER BY age(backend_xmin) DESC LIMIT 3)
""".strip(),
)
_NAMES = {
    "session": "the session {key} ({description})",
    "prepared": "the prepared transaction {key!r} of {description}",
    "slot": "the replication slot {key} ({description})",
    "standby": "the standby {description}, by hot_standby_feedback",
}
_MANY_TRANSACTIONS = 1_000_000


async def horizon_findings(
    connection: Connection, database: str, session: Session
) -> list[Finding]:
    """Who holds vacuum back in this database now. Raises PollError."""
    (rows,) = await connection.run([_HOLDERS], session)
    return judge_holders(
        database,
        [
            Holder(
                str(row["kind"]),
                str(row["key"]),
                str(row["description"]),
                max(int(number(row["age"])), 0),
                None if row["seconds"] is None else number(row["seconds"]),
                bool(row["can_be_ended"]),
            )
            for row in rows
        ],
    )


def judge_holders(database: str, holders: Iterable[Holder]) -> list[Finding]:
    """A note for each, and a warning for those that have held it for long."""
    found = []
    for holder in holders:
        seconds = holder.seconds
        since = "" if seconds is None else f" for {format_duration(max(round(seconds), 0))}"
        long = (seconds or 0) > LONG_HOLD or holder.transactions > _MANY_TRANSACTIONS
        name = _NAMES[holder.kind].format(key=holder.key, description=holder.description)
        found.append(
            Finding(
                Severity.WARNING if long else Severity.NOTE,
                "xmin_horizon",
                database,
                None,
                f"{name} holds the xmin horizon{since}, {holder.transactions:,} transactions back",
                "no vacuum removes a row that died after it began; end it only when you know what "
                "it does",
                _ending(holder),
            )
        )
    return found


def _ending(holder: Holder) -> tuple[str, ...]:
    if not holder.can_be_ended:
        return ()
    if holder.kind == "session":
        return (f"SELECT pg_terminate_backend({int(holder.key)})",)
    if holder.kind == "prepared":
        return (f"ROLLBACK PREPARED {quote_literal(holder.key)}",)
    return (f"SELECT pg_drop_replication_slot({quote_literal(holder.key)})",)
