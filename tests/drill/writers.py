"""Sixteen writers that do everything an application may do to a queue, and write down what."""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field

import psycopg

LEASE = 20.0
BACKOFF = 15.0
"""Both longer than the exporter may be blind: it is killed, and VACUUM FULL locks it out."""
BATCH = 150

CLAIM = """
WITH claimable AS MATERIALIZED (
  SELECT id, status AS before FROM payment
  WHERE (status = 'NEW' AND next_attempt_at <= now())
     OR (status = 'PROCESSING' AND claimed_until < now())
  ORDER BY created_at LIMIT {limit} FOR UPDATE SKIP LOCKED
)
UPDATE payment AS task
SET status = 'PROCESSING', attempts = attempts + 1, started_at = now(),
  claimed_until = now() + interval '{lease} s'
FROM claimable WHERE task.id = claimable.id
RETURNING task.id, task.attempts, task.task_type, claimable.before
"""

FINISH = """
UPDATE payment AS task
SET status = (ARRAY['DONE', 'DONE', 'DONE', 'DONE', 'FAILED', 'CANCELLED'])[1 + mod(task.id, 6)],
  finished_at = {clock}(), claimed_until = NULL
FROM unnest(%(ids)s::bigint[], %(attempts)s::int[]) AS mine (id, attempts)
WHERE task.id = mine.id AND task.attempts = mine.attempts AND task.status = 'PROCESSING'
"""

RETRY = """
UPDATE payment AS task
SET status = 'NEW', claimed_until = NULL, next_attempt_at = now() + interval '{backoff} s'
FROM unnest(%(ids)s::bigint[], %(attempts)s::int[]) AS mine (id, attempts)
WHERE task.id = mine.id AND task.attempts = mine.attempts AND task.status = 'PROCESSING'
"""

HEARTBEAT = """
UPDATE payment AS task SET claimed_until = now() + interval '{lease} s'
FROM unnest(%(ids)s::bigint[], %(attempts)s::int[]) AS mine (id, attempts)
WHERE task.id = mine.id AND task.attempts = mine.attempts AND task.status = 'PROCESSING'
"""

ENQUEUE = """
INSERT INTO payment (task_type, created_at, next_attempt_at)
SELECT %(type)s, {clock}(), {clock}() FROM generate_series(1, %(count)s)
"""

Connection = psycopg.AsyncConnection[tuple[object, ...]]
Values = dict[str, object]


@dataclass
class Truth:
    """What the writers know and the table does not keep: by task type."""

    reclaims: Counter[str] = field(default_factory=Counter)
    retries: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Task:
    """One claim of one task."""

    id: int
    attempts: int


@dataclass
class Writers:
    """Runs writers until told to stop, then lets every task come to its end."""

    dsn: str
    poll: float
    rate: float
    longest: float
    truth: Truth = field(default_factory=Truth)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    task_types: list[str] = field(default_factory=lambda: ["limits_check", "receipt", "transfer"])
    _chance: random.Random = field(default_factory=lambda: random.Random(1))
    _number: int = 0

    async def run(self) -> None:
        """Four producers and twelve workers, an archiver; returns when they have stopped."""
        tasks = [self._produce() for _ in range(4)] + [self._work() for _ in range(12)]
        await asyncio.gather(*tasks, self._archive())

    async def drain(self) -> None:
        """Finishes every task that is left, at once."""
        async with await self._connect() as connection:
            while True:
                await connection.execute(
                    "UPDATE payment SET next_attempt_at = now() "
                    "WHERE status = 'NEW' AND next_attempt_at > now()"
                )
                claimed = await self._claim(connection, 5_000)
                if claimed:
                    await self._finish_plainly(connection, claimed)
                    continue
                row = await (
                    await connection.execute(
                        "SELECT count(*) FROM payment WHERE finished_at IS NULL"
                    )
                ).fetchone()
                if row == (0,):
                    return
                await asyncio.sleep(0.2)

    async def rewrite_table(self) -> None:
        """VACUUM FULL: every row gets a new place."""
        async with await self._connect() as connection:
            await connection.execute("SET lock_timeout = '30s'")
            await connection.execute("VACUUM FULL payment")

    async def _connect(self) -> Connection:
        return await psycopg.AsyncConnection.connect(self.dsn, autocommit=True)

    async def _archive(self) -> None:
        async with await self._connect() as connection:
            while not self.stopping.is_set():
                await connection.execute(
                    "UPDATE payment SET payload = '{\"archived\": true}' WHERE id IN ("
                    "SELECT id FROM payment WHERE finished_at < now() - interval '1 s' "
                    "AND payload IS NULL ORDER BY finished_at DESC LIMIT 300 "
                    "FOR UPDATE SKIP LOCKED)"
                )
                await asyncio.sleep(0.5)

    async def _produce(self) -> None:
        async with await self._connect() as connection:
            while not self.stopping.is_set():
                task_type = self._chance.choice(self.task_types)
                values: Values = {"type": task_type, "count": BATCH}
                statement = ENQUEUE.format(clock=self._clock())
                begun = asyncio.get_running_loop().time()
                await self._in_some_transaction(connection, [(statement, values)] * 2)
                pause = 8 * BATCH / self.rate - (asyncio.get_running_loop().time() - begun)
                await asyncio.sleep(max(pause, 0))

    async def _work(self) -> None:
        async with await self._connect() as connection:
            while not self.stopping.is_set():
                tasks = await self._claim(connection, BATCH)
                if not tasks:
                    await asyncio.sleep(0.2)
                    continue
                chance = self._chance.random()
                if chance < 0.02:
                    continue  # dies with its leases
                if chance < 0.05:
                    await connection.execute(
                        HEARTBEAT.format(lease=LEASE).encode(), self._values(tasks)
                    )
                if chance < 0.15:
                    await connection.execute(
                        RETRY.format(backoff=BACKOFF).encode(), self._values(tasks[: BATCH // 3])
                    )
                    tasks = tasks[BATCH // 3 :]
                half = len(tasks) // 2
                statement = FINISH.format(clock=self._clock())
                parts = [
                    (statement, self._values(tasks[:half])),
                    (statement, self._values(tasks[half:])),
                ]
                await self._in_some_transaction(connection, parts)

    async def _claim(self, connection: Connection, limit: int) -> list[Task]:
        statement = CLAIM.format(limit=limit, lease=LEASE)
        rows = await (await connection.execute(statement.encode())).fetchall()
        tasks = []
        for task_id, attempts, task_type, before in rows:
            assert isinstance(task_id, int)
            assert isinstance(attempts, int)
            if before == "PROCESSING":
                self.truth.reclaims[str(task_type)] += 1
            elif attempts > 1:
                self.truth.retries[str(task_type)] += 1
            tasks.append(Task(task_id, attempts))
        return tasks

    async def _finish_plainly(self, connection: Connection, tasks: list[Task]) -> None:
        await connection.execute(FINISH.format(clock="now").encode(), self._values(tasks))

    def _values(self, tasks: list[Task]) -> Values:
        return {"ids": [t.id for t in tasks], "attempts": [t.attempts for t in tasks]}

    def _clock(self) -> str:
        return self._chance.choice(["now", "clock_timestamp"])

    async def _in_some_transaction(
        self, connection: Connection, parts: list[tuple[str, Values]]
    ) -> None:
        """Two statements, committed in one of the ways that applications have."""
        first, second = [(statement.encode(), values) for statement, values in parts]
        way = self._chance.choices(
            ["plain", "rollback", "savepoints", "late", "early", "prepared"],
            [50, 10, 20, 6, 8, 6],
        )[0]
        if way == "plain":
            await connection.execute(*first)
            await connection.execute(*second)
            return
        if way == "early":
            # Open before the first write: now() is long ago when it comes.
            await connection.execute("BEGIN")
            await connection.execute("SELECT now()")
            await asyncio.sleep(self._chance.uniform(0, 3))
        else:
            await connection.execute("BEGIN")
        if way == "rollback":
            await connection.execute(*first)
            await connection.execute(*second)
            await connection.execute("ROLLBACK")
            await connection.execute(*first)
            await connection.execute(*second)
            return
        await connection.execute("SAVEPOINT half")
        await connection.execute(*first)
        if way == "savepoints":
            await connection.execute("RELEASE half")
            await connection.execute("SAVEPOINT other")
            await connection.execute(*second)
            await connection.execute("ROLLBACK TO other")
        await connection.execute(*second)
        if way == "prepared":
            self._number += 1
            name = f"drill-{self._number}"
            await connection.execute(f"PREPARE TRANSACTION '{name}'".encode())
            await asyncio.sleep(self._chance.uniform(2.2 * self.poll, self.longest))
            await connection.execute(f"COMMIT PREPARED '{name}'".encode())
            return
        if way == "late":
            await asyncio.sleep(self._chance.uniform(0, self.longest))
        await connection.execute("COMMIT")
