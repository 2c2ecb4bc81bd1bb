"""The server itself: version, role in replication, pooler, clock, and rights to its statistics."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ..access import Select
from ..config import DatabaseConfig
from ..errors import PollError
from ..postgres import Connection, Session
from ..reading import number
from ..sqltext import quote_name
from .findings import Finding, Severity

OLDEST_VERSION = 130000
CLOCK_DIFFERENCE = 2.0
"""Seconds between our clock and the server's that are worth saying."""

_SERVER = Select(
    "server",
    """
SELECT current_setting('server_version_num')::int AS version_number,
  current_setting('server_version') AS version, pg_is_in_recovery() AS in_recovery,
  extract(epoch FROM clock_timestamp())::float8 AS now, pg_backend_pid() AS pid,
  current_user::text AS role,
  pg_has_role('pg_read_all_stats', 'USAGE') AS sees_sessions
""".strip(),
)
_PID = Select("pid", "SELECT pg_backend_pid() AS pid")


@dataclass(frozen=True)
class Server:
    """What one database's server says of itself. ``pooler`` is None where there is none."""

    version_number: int
    version: str
    in_recovery: bool
    role: str
    sees_sessions: bool
    clock_ahead: float
    pooler: str | None


async def read_server(connection: Connection, config: DatabaseConfig) -> Server:
    """Asks the server. Raises PollError."""
    session = Session.of(config)
    before = time.time()
    (rows,) = await connection.run([_SERVER], session)
    ours = (before + time.time()) / 2
    row = rows[0]
    pid = int(number(row["pid"]))
    pooled = connection.backend_pid != pid
    return Server(
        version_number=int(number(row["version_number"])),
        version=str(row["version"]),
        in_recovery=bool(row["in_recovery"]),
        role=str(row["role"]),
        sees_sessions=bool(row["sees_sessions"]),
        clock_ahead=number(row["now"]) - ours,
        pooler=await _pool_mode(connection, config, session, pid) if pooled else None,
    )


async def _pool_mode(
    connection: Connection, config: DatabaseConfig, session: Session, pid: int
) -> str:
    """How a pooler hands out server connections.

    A second client that is given our server process, or makes ours change, shows that it is lent
    for a transaction only.
    """
    second = Connection(config)
    try:
        await second.connect()
        (rows,) = await second.run([_PID], session)
        theirs = int(number(rows[0]["pid"]))
        (rows,) = await connection.run([_PID], session)
        ours = int(number(rows[0]["pid"]))
    except PollError:
        return "session"
    finally:
        await second.close()
    return "transaction" if theirs == pid or ours != pid else "session"


def server_findings(database: str, server: Server) -> list[Finding]:
    """What to say of a server."""
    finding = partial(Finding, database=database, queue=None)
    place = "a standby" if server.in_recovery else "a primary"
    found = [
        finding(
            Severity.NOTE,
            "server",
            what=f"PostgreSQL {server.version}, {place}, read as {server.role}",
            why="on a standby row counters and dead rows are absent, and events_exact is 0"
            if server.in_recovery
            else "everything can be read here",
        )
    ]
    if server.version_number < OLDEST_VERSION:
        found.append(
            finding(
                Severity.ERROR,
                "version",
                what=f"PostgreSQL {server.version} is not supported",
                why="statements are made for PostgreSQL 13 and later",
            )
        )
    if server.pooler is not None:
        found.append(_pooler(finding, server.pooler))
    if abs(server.clock_ahead) > CLOCK_DIFFERENCE:
        side = "ahead of" if server.clock_ahead > 0 else "behind"
        found.append(
            finding(
                Severity.WARNING,
                "clock",
                what=f"the server's clock is {abs(server.clock_ahead):.1f} s {side} this machine's",
                why="ages are right, as the server's clock alone makes them; comparing the "
                "*_timestamp_seconds with Prometheus's time() is off by that much",
            )
        )
    if not server.sees_sessions:
        found.append(_statistics(finding, server))
    return found


def _pooler(finding: Callable[..., Finding], mode: str) -> Finding:
    text = {
        "transaction": "fine: every poll is one implicit transaction and leaves nothing behind",
        "session": "the exporter keeps one of its server connections for good; transaction mode "
        "would lend it for a few milliseconds at a time",
    }
    return finding(
        Severity.NOTE, "pooler", what=f"a pooler in {mode} mode stands between", why=text[mode]
    )


def _statistics(finding: Callable[..., Finding], server: Server) -> Finding:
    return finding(
        Severity.WARNING,
        "statistics_role",
        what=f"the role {server.role} is no member of pg_read_all_stats (or pg_monitor)",
        why="other sessions' transactions are hidden: event counters look back 5 minutes and are "
        "marked as inexact (events_exact 0), and who holds vacuum back "
        "(xmin_horizon_age_*) is absent for sessions and standbys",
        sql=(f"GRANT pg_read_all_stats TO {quote_name(server.role)}",),
    )
