"""Scenarios of databases and exporters."""

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
    gone,
    grow,
    line,
    quiet,
    scenario,
    shows,
    silent,
)

P = Queue()
SECOND = replace(P, instance="b")
LINK = "https://grafana.example.com/d/table-queue-depth?var-database=main&var-queue="
OF_DATABASE = f"{LINK}&var-cluster=eu&var-namespace=mon&var-job=tqx"
OF_JOB = OF_DATABASE.replace("database=main", "database=")
EXPORTER = "TableQueueExporterDown"
DATABASE = "TableQueueDatabaseDown"
POLL = "TableQueuePollFailing"
UNWATCHED = "TableQueueUnwatched"
LIMITED = "TableQueueCountsLimited"
RELOAD = "TableQueueConfigReloadFailed"
STATE = "TableQueueStateNotSaved"

_BUILD = "exporter_build_info"


def _watched(queue: Queue, up: str) -> Series:
    return queue("up", up)


EXPORTER_DOWN = (
    scenario(
        "exporter down: never there, or gone with its target",
        silent(EXPORTER, 4.5),
        shows(
            EXPORTER,
            6,
            {},
            description="No table-queue-exporter is to be seen at all.",
            value="",
            dashboard_url="https://grafana.example.com/d/table-queue-depth?var-database=&var-queue=",
        ),
        pair=False,
    ),
    scenario(
        "exporter down: the only one of a job is down, for all its queues once, held after",
        P(_BUILD, line(flat(1, 20), gone(20), flat(1, 80))),
        P.target(line(flat(1, 20), flat(0, 20), flat(1, 80))),
        _watched(P, line(flat(1, 20), gone(20), flat(1, 80))),
        _watched(Queue("second"), line(flat(1, 20), gone(20), flat(1, 80))),
        silent(EXPORTER, 24.5),
        shows(
            EXPORTER,
            26,
            P.job_labels(),
            description="Exporter tqx is down, and 2 of its queues have no other.",
            value="2 queues",
            dashboard_url=OF_JOB,
        ),
        fires(EXPORTER, 44, P.job_labels()),
        quiet(EXPORTER, 46),
        silent(UNWATCHED, 60),
    ),
    scenario(
        "exporter down: one of two shards; another team's job of that name goes on",
        P(_BUILD, line(flat(1, 20), gone(60))),
        SECOND(_BUILD, flat(1, 80)),
        P.target(line(flat(1, 20), flat(0, 60))),
        SECOND.target(flat(1, 80)),
        Queue(namespace="other").target(flat(0, 80)),
        _watched(P, line(flat(1, 20), gone(60))),
        _watched(replace(SECOND, queue="other"), flat(1, 80)),
        _watched(Queue(namespace="other", instance="c"), flat(1, 80)),
        silent(EXPORTER, 24.5),
        fires(EXPORTER, 40, P.job_labels()),
        silent(UNWATCHED, 79),
        pair=False,
    ),
    scenario(
        "exporter not down: one of a pair; a restart of four minutes; a queue that is removed",
        P(_BUILD, line(flat(1, 20), gone(60))),
        SECOND(_BUILD, line(flat(1, 50), gone(4), flat(1, 26))),
        P.target(line(flat(1, 20), flat(0, 60))),
        SECOND.target(line(flat(1, 50), flat(0, 4), flat(1, 26))),
        _watched(P, line(flat(1, 20), gone(60))),
        _watched(SECOND, line(flat(1, 50), gone(4), flat(1, 26))),
        Queue(job="whole").target(flat(1, 80)),
        _watched(Queue("removed", job="whole"), line(flat(1, 5), gone(75))),
        silent(EXPORTER, 79),
        pair=False,
    ),
)

QUEUE_UNWATCHED = (
    scenario(
        "unwatched: a queue leaves the configuration",
        P(_BUILD, flat(1, 60)),
        P.target(flat(1, 60)),
        _watched(P, line(flat(1, 20), gone(40))),
        _watched(Queue("stays"), flat(1, 60)),
        silent(UNWATCHED, 34.5),
        shows(
            UNWATCHED,
            36,
            P.labels(),
            description="Queue payment of database main has vanished from the exporter's metrics, "
            "and no target of job tqx is down: was it removed on purpose?",
            dashboard_url=DASHBOARD,
        ),
    ),
    scenario(
        "unwatched, but left to the alert on the exporter: no exporter at all",
        P(_BUILD, line(flat(1, 20), gone(60))),
        P.target(line(flat(1, 20), gone(60))),
        _watched(P, line(flat(1, 20), gone(60))),
        silent(UNWATCHED, 79),
        fires(EXPORTER, 30, {}),
    ),
)


def six_hours_unwatched() -> tuple[Series | Check, ...]:
    """Tell of a queue that leaves the configuration and is forgotten after six hours."""
    return (
        P(_BUILD, flat(1, 400)),
        P.target(flat(1, 400)),
        _watched(P, line(flat(1, 20), gone(380))),
        fires(UNWATCHED, 375, P.labels()),
        quiet(UNWATCHED, 385),
        silent(EXPORTER, 385),
    )


DATABASE_DOWN = (
    scenario(
        "database down: two minutes without an answer, three minutes long, then held",
        P("database_up", line(flat(1, 20), flat(0, 20), flat(1, 40))),
        silent(DATABASE, 24),
        shows(
            DATABASE,
            26,
            P.database_labels(),
            description="Database main has not answered job tqx for at least 5m.",
            dashboard_url=OF_DATABASE,
        ),
        fires(DATABASE, 44, P.database_labels()),
        quiet(DATABASE, 46),
    ),
    scenario(
        "database not down: a failover of a minute, another at each fifth, one replica cut off",
        P("database_up", line(*([flat(1, 4), flat(0, 1)] * 16))),
        Queue(database="flaps")("database_up", line(*([flat(0, 1.5), flat(1, 0.5)] * 40))),
        Queue(database="other")("database_up", flat(0, 80)),
        replace(SECOND, database="other")("database_up", flat(1, 80)),
        silent(DATABASE, 79),
        pair=False,
    ),
)

POLL_FAILING = (
    scenario(
        "poll failing: three of four polls, though the database answers",
        P("up", line(flat(1, 30), *([flat(1, 0.5), flat(0, 1.5)] * 40))),
        P("database_up", flat(1, 110)),
        silent(POLL, 42),
        shows(
            POLL,
            60,
            P.labels(),
            description="Queue payment of database main: its figures were there for 25.81% of the "
            "last 15m.",
            value="25.81%",
            dashboard_url=DASHBOARD,
        ),
        fires(POLL, 48, P.labels()),
    ),
    scenario(
        "poll not failing: two of three succeed, a bad replica of two, a database that was down",
        Queue("mostly")("up", line(*([flat(1, 1), flat(0, 0.5)] * 60))),
        P("database_up", flat(1, 90)),
        SECOND("database_up", flat(1, 90)),
        Queue("pair")("up", flat(0, 90)),
        replace(SECOND, queue="pair")("up", flat(1, 90)),
        Queue(database="down")("up", line(flat(1, 20), flat(0, 20), flat(1, 50))),
        Queue(database="down")("database_up", line(flat(1, 20), flat(0, 20), flat(1, 50))),
        silent(POLL, 89),
        pair=False,
    ),
    scenario(
        "poll failing: a lock that stays, not one of six minutes",
        P("up", line(flat(1, 30), flat(0, 6), flat(1, 54))),
        P("database_up", flat(1, 90)),
        Queue("locked")("up", line(flat(1, 30), flat(0, 60))),
        silent(POLL, 42),
        fires(POLL, 44, Queue("locked").labels()),
        fires(POLL, 60, Queue("locked").labels()),
    ),
)

THE_REST = (
    scenario(
        "counts limited for half an hour",
        P("count_limited", line(flat(0, 10), flat(1, 80)), status="ready"),
        P("count_limited", flat(0, 90), status="failed"),
        Queue("not")("count_limited", flat(0, 90), status="ready"),
        silent(LIMITED, 39.5),
        shows(
            LIMITED,
            41,
            P.labels(),
            description="Queue payment of database main holds more tasks than the exporter counts. "
            "Ages are still exact.",
            dashboard_url=DASHBOARD,
        ),
    ),
    scenario(
        "reload failed for five minutes, on one exporter of two",
        P("exporter_config_last_reload_successful", line(flat(1, 10), flat(0, 50))),
        SECOND("exporter_config_last_reload_successful", flat(1, 60)),
        Queue(job="fine")("exporter_config_last_reload_successful", flat(1, 60)),
        silent(RELOAD, 14.5),
        shows(
            RELOAD,
            16,
            P.job_labels(),
            description="Exporter tqx: the last reload failed; its log names every error.",
            dashboard_url=OF_JOB,
        ),
        pair=False,
    ),
    scenario(
        "state not saved, again and again; one failed write is no ticket",
        P("exporter_state_write_errors_total", line(flat(0, 10), grow(1, 1, 50))),
        Queue(job="once")("exporter_state_write_errors_total", line(flat(0, 10), flat(1, 50))),
        silent(STATE, 24.5),
        shows(
            STATE,
            35,
            P.job_labels(),
            description="Exporter tqx: 10 writes of the state failed in the last 10m; alerts that "
            "need counters are blind.",
            value="10",
            dashboard_url=OF_JOB,
        ),
    ),
    scenario(
        "state not saved every seven minutes",
        Queue(job="slow")(
            "exporter_state_write_errors_total", line(*(flat(n, 7) for n in range(9)))
        ),
        fires(STATE, 50, Queue(job="slow").job_labels()),
    ),
    scenario(
        "state saved but for one write every twenty minutes",
        P("exporter_state_write_errors_total", line(flat(0, 20), flat(1, 20), flat(2, 50))),
        silent(STATE, 89),
    ),
)

SCENARIOS: tuple[Scenario, ...] = (
    *EXPORTER_DOWN,
    *QUEUE_UNWATCHED,
    *DATABASE_DOWN,
    *POLL_FAILING,
    *THE_REST,
)
