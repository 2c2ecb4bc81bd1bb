"""Scenarios of too many arrivals, and of none."""

from __future__ import annotations

from alerts.scenarios.dsl import (
    DASHBOARD,
    Queue,
    Scenario,
    Series,
    fires,
    flat,
    gone,
    grow,
    line,
    scenario,
    shows,
    silent,
)

P = Queue()
BACKLOG = "TableQueueBacklogGrowing"
SILENCE = "TableQueueNoArrivals"


def _backlog(queue: Queue, ready: str, done: str, objective: float) -> Series:
    return {
        **queue.counters(done),
        **queue.tasks(ready=ready),
        **queue("objective_seconds", flat(objective, 120)),
    }


BACKLOG_GROWING = (
    scenario(
        "backlog: grows by 20 a minute beside 20 done a minute",
        _backlog(P, line(flat(0, 20), grow(0, 20, 100)), grow(0, 20, 120), 60),
        silent(BACKLOG, 30.5),
        shows(
            BACKLOG,
            40,
            P.labels(),
            description="Queue payment of database main: at the present pace the backlog takes "
            "20m 0s; the objective is 1m 0s.",
            value="20m 0s",
            objective="1m 0s",
            dashboard_url=DASHBOARD,
        ),
        fires(BACKLOG, 32, P.labels()),
    ),
    scenario(
        "backlog: grows slowly, by 15 in a quarter of an hour",
        _backlog(P, grow(100, 1, 120), grow(0, 20, 120), 60),
        fires(BACKLOG, 60, P.labels()),
    ),
    scenario(
        "backlog: grows in steps, four minutes apart",
        _backlog(P, line(*(flat(40 * n, 4) for n in range(30))), grow(0, 20, 120), 60),
        fires(BACKLOG, 60, P.labels()),
    ),
    scenario(
        "no backlog: steady, creeping, within the objective, a batch worked off, no objective",
        _backlog(Queue("steady"), flat(100, 120), grow(0, 20, 120), 60),
        _backlog(Queue("creeps"), grow(100, 0.6, 120), grow(0, 20, 120), 60),
        _backlog(Queue("within"), grow(0, 20, 120), grow(0, 2000, 120), 600),
        _backlog(
            Queue("batch"),
            line(flat(0, 30), flat(3000, 1), grow(2900, -50, 58), flat(0, 31)),
            line(flat(0, 30), grow(0, 50, 90)),
            60,
        ),
        # Seven minutes of arrivals, then as long again until it is gone.
        _backlog(
            Queue("wave"),
            line(flat(0, 30), grow(0, 30, 7), grow(210, -30, 7), flat(0, 76)),
            grow(0, 20, 120),
            60,
        ),
        Queue("unset").counters(grow(0, 20, 120)),
        Queue("unset").tasks(ready=grow(0, 20, 120)),
        Queue("deletes").tasks(ready=grow(0, 20, 120)),
        Queue("deletes")("finished_total", grow(0, 0.1, 120), outcome="failed"),
        Queue("deletes")("objective_seconds", flat(60, 120)),
        silent(BACKLOG, 95),
    ),
)


def _arrivals(queue: Queue, last: str, limit: float) -> Series:
    return {
        **queue("last_enqueued_timestamp_seconds", last),
        **queue("max_silence_seconds", flat(limit, 120)),
        **queue("up", flat(1, 120)),
    }


NO_ARRIVALS = (
    scenario(
        "silence: nothing comes after the tenth minute",
        _arrivals(P, line(grow(0, 60, 10), flat(600, 110)), 1200),
        silent(SILENCE, 34.5),
        shows(
            SILENCE,
            36,
            P.labels(),
            description="Queue payment of database main: the last task was enqueued 26m 0s ago; "
            "the limit is 20m 0s.",
            value="26m 0s",
            dashboard_url=DASHBOARD,
        ),
    ),
    scenario(
        "silence: a table that empties, a newest row that is deleted, a row from the future",
        _arrivals(P, line(grow(0, 60, 10), gone(110)), 1200),
        _arrivals(Queue("deletes"), line(grow(0, 60, 40), flat(10, 1), grow(2460, 60, 79)), 1200),
        _arrivals(Queue("future"), line(grow(0, 60, 10), flat(9e9, 110)), 1200),
        silent(SILENCE, 34),
        fires(SILENCE, 36, P.labels(), Queue("future").labels()),
        fires(SILENCE, 50, P.labels(), Queue("future").labels()),
    ),
    scenario(
        "no silence: without a limit, within it, and a queue that is no longer watched",
        Queue("unset")("last_enqueued_timestamp_seconds", flat(0, 120)),
        Queue("unset")("up", flat(1, 120)),
        _arrivals(Queue("within"), grow(0, 60, 120), 1200),
        Queue("removed")("last_enqueued_timestamp_seconds", line(flat(0, 5), gone(115))),
        Queue("removed")("max_silence_seconds", line(flat(600, 5), gone(115))),
        Queue("removed")("up", line(flat(1, 5), gone(115))),
        silent(SILENCE, 40),
    ),
)

SCENARIOS: tuple[Scenario, ...] = (*BACKLOG_GROWING, *NO_ARRIVALS)
