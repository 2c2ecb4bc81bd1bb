"""One connection to one database: messages, time-outs and what their errors mean."""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass

import psycopg
from psycopg.rows import dict_row

from .access import Select
from .config import DatabaseConfig
from .dsn import complete_dsn, secrets_of
from .errors import PollError, Reason
from .logs import redact
from .reading import Row
from .sqltext import quote_literal

APPLICATION_NAME = "table-queue-exporter"
_DEADLINE_GRACE = 2.0
"""Seconds beyond the server's own time-outs that a pooler or a network may cost."""
_CLOSE_TIMEOUT = 2.0


@dataclass(frozen=True)
class Session:
    """What a message sets for itself. Times in seconds."""

    statement_timeout: float = 1.0
    lock_timeout: float = 0.2
    timezone: str = "UTC"
    search_path: tuple[str, ...] = ("public",)

    @classmethod
    def of(cls, config: DatabaseConfig, timezone: str = "UTC", schema: str = "public") -> "Session":
        """The session of one database's configuration, for a table in a schema."""
        path = tuple(dict.fromkeys((schema, "public")))
        return cls(config.statement_timeout, config.lock_timeout, timezone, path)

    def settings(self, *, one_snapshot: bool = False) -> list[str]:
        """The SET LOCAL statements that open each message.

        With ``one_snapshot`` all SELECTs of the message see the table as of the same moment.
        """
        path = ", ".join('"' + part.replace('"', '""') + '"' for part in self.search_path)
        values = (
            "transaction_read_only = on",
            f"statement_timeout = {max(round(self.statement_timeout * 1000), 1)}",
            f"lock_timeout = {max(round(self.lock_timeout * 1000), 1)}",
            "jit = off",
            "max_parallel_workers_per_gather = 0",
            "enable_seqscan = off",
            f"TimeZone = {quote_literal(self.timezone)}",
            f"search_path = {path}",
            *(["transaction_isolation = 'repeatable read'"] if one_snapshot else []),
        )
        return [f"SET LOCAL {value}" for value in values]


def build_message(
    selects: Sequence[Select], session: Session, *, one_snapshot: bool = False
) -> str:
    """One simple-protocol message: an implicit transaction block without BEGIN or COMMIT.

    After an error the session is idle again and nothing leaks, so that a pooler in transaction
    mode is content; an explicit BEGIN would stay aborted and pin the pooler's slot.
    """
    statements = session.settings(one_snapshot=one_snapshot)
    for select in selects:
        statements += [f"SET LOCAL {setting}" for setting in select.settings]
        statements.append(select.sql)
    return ";\n".join(statements)


class Connection:
    """The one connection to a database. Not for concurrent use.

    ``run`` raises PollError; after a connection error the connection is closed and ``connected``
    is False.
    """

    def __init__(self, config: DatabaseConfig) -> None:
        self._config = config
        self._connection: psycopg.AsyncConnection[dict[str, object]] | None = None

    @property
    def connected(self) -> bool:
        """Whether there is a connection that is not known to be broken."""
        return self._connection is not None and not self._connection.closed

    @property
    def backend_pid(self) -> int | None:
        """The server process that we were told is ours: a pooler tells another."""
        return None if self._connection is None else self._connection.info.backend_pid

    async def connect(self) -> None:
        """Connects. Raises PollError(connection)."""
        config = self._config
        dsn = complete_dsn(
            config.dsn.get_secret_value(),
            config.dsn_file,
            None if config.password is None else config.password.get_secret_value(),
            config.password_file,
        )
        redact.add(secrets_of(dsn))
        try:
            async with asyncio.timeout(config.connect_timeout):
                self._connection = await psycopg.AsyncConnection.connect(
                    dsn,
                    autocommit=True,
                    prepare_threshold=None,
                    row_factory=dict_row,
                    application_name=APPLICATION_NAME,
                    client_encoding="utf8",
                    connect_timeout=max(int(config.connect_timeout) + 1, 2),
                )
        except TimeoutError:
            raise PollError(
                Reason.CONNECTION, f"no connection within {config.connect_timeout} s"
            ) from None
        except psycopg.Error as error:
            raise PollError(Reason.CONNECTION, _first_line(error)) from error

    async def close(self) -> None:
        """Ends what runs on the server, then the session. Never raises for a broken connection."""
        connection, self._connection = self._connection, None
        if connection is None or connection.closed:
            return
        if connection.pgconn.transaction_status == psycopg.pq.TransactionStatus.ACTIVE:
            # It fails where the server is gone, or ends the statement at its own time-out.
            with contextlib.suppress(psycopg.Error):
                await connection.cancel_safe(timeout=_CLOSE_TIMEOUT)
        await connection.close()

    async def run(
        self, selects: Sequence[Select], session: Session, *, one_snapshot: bool = False
    ) -> list[list[Row]]:
        """Sends one message and returns the rows of each SELECT, in order."""
        if self._connection is None:
            raise PollError(Reason.CONNECTION, "not connected")
        message = build_message(selects, session, one_snapshot=one_snapshot)
        deadline = session.statement_timeout * len(selects) + session.lock_timeout
        begun = time.monotonic()
        try:
            async with asyncio.timeout(deadline + _DEADLINE_GRACE):
                return await self._results(message)
        except TimeoutError:
            await self.close()
            raise PollError(
                Reason.TIMEOUT, "the server did not answer within the time-outs; reconnecting"
            ) from None
        except psycopg.Error as error:
            elapsed = time.monotonic() - begun
            failure = _classified(error, elapsed, session)
            if failure.reason is Reason.CONNECTION or not self.connected:
                await self.close()
            raise failure from error

    async def _results(self, message: str) -> list[list[Row]]:
        assert self._connection is not None
        results: list[list[Row]] = []
        async with self._connection.cursor() as cursor:
            await cursor.execute(message.encode())
            more: bool | None = True
            while more:
                if cursor.description is not None:
                    results.append(list(await cursor.fetchall()))
                more = cursor.nextset()
        return results


_REASONS = {
    "0A000": Reason.UNDEFINED_OBJECT,  # an unlogged table cannot be read on a standby
    "25P02": Reason.OTHER,
    "40001": Reason.CONFLICT,
    "40P01": Reason.CONFLICT,
    "42501": Reason.PERMISSION,
    "55P03": Reason.LOCK_TIMEOUT,
    "3F000": Reason.UNDEFINED_OBJECT,
    "42P01": Reason.UNDEFINED_OBJECT,
    "42703": Reason.UNDEFINED_OBJECT,
    "42704": Reason.UNDEFINED_OBJECT,
    "42883": Reason.UNDEFINED_OBJECT,
    "42P09": Reason.UNDEFINED_OBJECT,
    "53300": Reason.CONNECTION,
    "57P01": Reason.CONNECTION,
    "57P02": Reason.CONNECTION,
    "57P03": Reason.CONNECTION,
    "57P05": Reason.CONNECTION,
}
"""SQLSTATEs as PostgreSQL's appendix A lists them; whole classes are in _CLASSES."""

_CLASSES = {
    "08": Reason.CONNECTION,
    "28": Reason.CONNECTION,
    "22": Reason.DATA,
    "42": Reason.DATA,
}

_ADVICE = {
    Reason.TIMEOUT: "a missing index, or dead rows that vacuum cannot remove, are likely",
    Reason.LOCK_TIMEOUT: "something locks the table (ALTER TABLE, VACUUM FULL); it is tried again",
    Reason.PERMISSION: "the command `sql` prints the GRANTs that are needed",
    Reason.UNDEFINED_OBJECT: "compare the configuration with the table; capitals need quotes",
    Reason.DATA: "an expression of the configuration does not fit the column's type or values",
}


def _classified(error: psycopg.Error, elapsed: float, session: Session) -> PollError:
    """What an error of the server means. Its own text is kept, with what to do next."""
    state = error.sqlstate
    if state is None:
        reason = Reason.CONNECTION
    elif state == "57014":
        # The text would tell a time-out from a cancel, but it is in the server's language.
        timed_out = elapsed >= session.statement_timeout * 0.9
        reason = Reason.TIMEOUT if timed_out else Reason.CANCELLED
    else:
        reason = _REASONS.get(state) or _CLASSES.get(state[:2], Reason.OTHER)
    text = _first_line(error)
    if reason in _ADVICE:
        text = f"{text} ({_ADVICE[reason]})"
    return PollError(reason, text)


def _first_line(error: psycopg.Error) -> str:
    if error.diag.message_primary:
        return error.diag.message_primary
    return " ".join(str(error).split()) or type(error).__name__
