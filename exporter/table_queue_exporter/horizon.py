"""Which transactions may still add rows with old stamps, and which server says so."""

from collections.abc import Sequence

from .access import Select
from .reading import Row, number
from .slices import Horizon, Server

HORIZON = Select(
    "horizon",
    """
SELECT 'now' AS kind, '' AS key, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS time,
  pg_is_in_recovery() AS in_recovery, pg_has_role('pg_read_all_stats', 'USAGE') AS sees_sessions
UNION ALL
SELECT 'session', pid || ':' || extract(epoch FROM xact_start),
  (extract(epoch FROM xact_start) * 1000000)::bigint, NULL, NULL
FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
  AND backend_type NOT IN ('autovacuum worker', 'walsender', 'parallel worker')
UNION ALL
SELECT 'prepared', 'prepared:' || transaction || ':' || gid, NULL, NULL, NULL
FROM pg_prepared_xacts WHERE database = current_database()
UNION ALL
SELECT 'replayed', '', (extract(epoch FROM pg_last_xact_replay_timestamp()) * 1000000)::bigint,
  NULL, NULL
UNION ALL
SELECT 'system', system_identifier::text, NULL, NULL, NULL FROM pg_control_system()
UNION ALL
SELECT 'timeline', CASE WHEN pg_is_in_recovery()
    THEN (SELECT lpad(to_hex(timeline_id), 8, '0') FROM pg_control_checkpoint())
    ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END, NULL, NULL, NULL
""".strip(),
)
"""Every transaction that may still add rows: sent in a message of its own *before* the count.

A transaction that commits before this is read is visible to the count. One that is open now shows
here. One that begins later stamps its rows later. In one snapshot with the count, a transaction
could commit after the snapshot and yet be missing here, and its rows would be lost.
"""


def read_horizon(rows: Sequence[Row]) -> tuple[Horizon, Server]:
    """The rows of HORIZON."""
    by_kind: dict[str, list[Row]] = {}
    for row in rows:
        by_kind.setdefault(str(row["kind"]), []).append(row)
    (now,) = by_kind["now"]
    replayed = by_kind["replayed"][0]["time"]
    horizon = Horizon(
        now=_integer(now["time"]),
        sessions={
            str(row["key"]): _integer(row["time"])
            for row in by_kind.get("session", [])
            if row["time"] is not None
        },
        prepared=frozenset(str(row["key"]) for row in by_kind.get("prepared", [])),
        sees_sessions=bool(now["sees_sessions"]),
        in_recovery=bool(now["in_recovery"]),
        replayed=None if replayed is None else _integer(replayed),
    )
    server = Server(str(by_kind["system"][0]["key"]), str(by_kind["timeline"][0]["key"]))
    return horizon, server


def _integer(value: object) -> int:
    return int(number(value)) if not isinstance(value, int) else value
