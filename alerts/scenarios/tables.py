"""Scenarios of tables and of what slows them down."""

from __future__ import annotations

from dataclasses import replace

from alerts.scenarios.dsl import (
    DASHBOARD,
    Check,
    Queue,
    Scenario,
    Series,
    fires,
    flat,
    grow,
    line,
    scenario,
    shows,
    silent,
)

P = Queue()
LINK = "https://grafana.example.com/d/table-queue-depth?var-database=main&var-queue="
OF_DATABASE = f"{LINK}&var-cluster=eu&var-namespace=mon&var-job=tqx"
VACUUM = "TableQueueVacuumBlocked"
BLOATED = "TableQueueBloated"
OUTGROWN = "TableQueueOutgrown"


def _horizon(queue: Queue, holder: str, transactions: str, seconds: str = "") -> Series:
    series = queue("xmin_horizon_age_transactions", transactions, holder=holder)
    return series | (queue("xmin_horizon_age_seconds", seconds, holder=holder) if seconds else {})


VACUUM_BLOCKED = (
    scenario(
        "vacuum blocked: a session that is half an hour old; a slot, which has no time",
        _horizon(P, "session", flat(5000, 120), grow(0, 60, 120)),
        _horizon(Queue(database="slots"), "slot", line(flat(0, 40), flat(1_500_000, 80))),
        silent(VACUUM, 40),
        shows(
            VACUUM,
            42,
            P.database_labels(holder="session"),
            description="Database main: the holder `session` has held vacuum back for 42m 0s, by "
            "5k transactions: every claim steps over the rows that died since.",
            value="5k transactions",
            dashboard_url=OF_DATABASE,
        ),
        fires(
            VACUUM,
            52,
            P.database_labels(holder="session"),
            Queue(database="slots").database_labels(holder="slot"),
        ),
    ),
    scenario(
        "vacuum not blocked: a long report, a young session that holds much, a slot that follows",
        _horizon(P, "session", flat(9_000_000, 90), flat(1750, 90)),
        _horizon(P, "slot", flat(600_000, 90)),
        silent(VACUUM, 89),
    ),
)


def _table(queue: Queue, dead: str, live: float, minutes: float = 180) -> Series:
    return {**queue("dead_rows", dead), **queue("live_rows", flat(live, minutes))}


# Two queues in one table: the table's figures belong to neither.
_SHARED = (Queue("jobs/a", table="public.jobs"), Queue("jobs/b", table="public.jobs"))

_OLD = Queue("old", table="public.old")

TABLE_BLOATED = (
    scenario(
        "bloated: never vacuumed; last vacuumed long ago; a table of two queues",
        _table(P, line(flat(0, 20), flat(15_000, 160)), 20_000),
        P.info(180),
        _table(_SHARED[0], flat(60_000, 180), 60_000),
        _SHARED[0]("last_autovacuum_timestamp_seconds", flat(-2280, 180)),
        _SHARED[0].info(180),
        _SHARED[1].info(180),
        _table(_OLD, line(flat(0, 22), flat(15_000, 158)), 20_000),
        _OLD("last_autovacuum_timestamp_seconds", flat(-2400, 180)),
        _OLD.info(180),
        silent(BLOATED, 49.5),
        shows(
            BLOATED,
            51,
            P.labels(table="public.payment"),
            description="Table public.payment of database main holds 15k dead rows, and no "
            "autovacuum of it has ended in the last 1h.",
            value="15k dead rows",
            dashboard_url=DASHBOARD,
        ),
        fires(
            BLOATED,
            55,
            P.labels(table="public.payment"),
            P.database_labels(table="public.jobs"),
            _OLD.labels(table="public.old"),
        ),
    ),
    scenario(
        "not bloated: a small table, a large one, one vacuumed fifty minutes ago",
        _table(replace(P, table="small"), flat(9000, 180), 9),
        replace(P, table="small").info(180),
        replace(P, queue="vacuumed", table="vacuumed").info(180),
        _table(replace(P, table="large"), flat(60_000, 180), 180_000),
        _table(replace(P, table="vacuumed"), flat(60_000, 180), 9),
        replace(P, table="vacuumed")("last_autovacuum_timestamp_seconds", grow(-3000, 60, 180)),
        silent(BLOATED, 60),
    ),
)

# A rate over an hour is full only after an hour: 600 a second pass 500 after fifty minutes.
QUEUE_OUTGROWN = (
    scenario(
        "outgrown: 600 tasks a second for two hours; not so 400, a burst, an archiver's deletes",
        P.counters(grow(0, 12_000, 240), failed=grow(0, 12_000, 240)),
        Queue(task_type="u").counters(grow(0, 12_000, 240)),
        P.info(240),
        P("rows_deleted_total", grow(0, 36_000, 240)),
        Queue("less").counters(grow(0, 24_000, 240)),
        Queue("burst").counters(line(flat(0, 10), grow(0, 72_000, 60), flat(4_320_000, 170))),
        Queue("archived", table="public.archived").counters(grow(0, 60, 240)),
        Queue("archived", table="public.archived").info(240),
        Queue("beside", table="public.archived").info(240),
        Queue("archived", table="public.archived")("rows_deleted_total", grow(0, 90_000, 240)),
        silent(OUTGROWN, 170),
        shows(
            OUTGROWN,
            172,
            P.labels(),
            description="Queue payment of database main has finished 600 tasks a second for hours.",
            value="600 tasks a second",
            dashboard_url=DASHBOARD,
        ),
    ),
)


def hours_of_deletes() -> tuple[Series | Check, ...]:
    """Tell of a library that deletes what is done, 600 rows a second."""
    deletes = Queue("deletes", table="public.deletes")
    slower = Queue("slower", table="public.slower")
    unnamed = Queue(table="public.unnamed")
    visible = Queue("visible", table="public.visible")
    return (
        deletes("rows_deleted_total", grow(0, 36_000, 400)),
        deletes("finished_total", grow(0, 1, 400), outcome="failed"),
        deletes.info(400),
        slower("rows_deleted_total", grow(0, 24_000, 400)),
        slower.info(400),
        unnamed("rows_deleted_total", grow(0, 24_000, 400)),
        visible.counters(grow(0, 60, 400)),
        visible.info(400),
        _SHARED[0]("rows_deleted_total", grow(0, 36_000, 400)),
        _SHARED[0].info(400),
        _SHARED[1].info(400),
        fires(
            OUTGROWN,
            175,
            deletes.labels(table="public.deletes"),
            P.database_labels(table="public.jobs"),
        ),
    )


SCENARIOS: tuple[Scenario, ...] = (*VACUUM_BLOCKED, *TABLE_BLOATED, *QUEUE_OUTGROWN)
