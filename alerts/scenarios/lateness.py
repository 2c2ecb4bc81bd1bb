"""Scenarios of tasks that are late, or that nobody takes at all."""

from __future__ import annotations

from alerts.scenarios.dsl import (
    DASHBOARD,
    Queue,
    Scenario,
    Series,
    fires,
    flat,
    grow,
    line,
    quiet,
    scenario,
    shows,
    silent,
)

P = Queue()
LATE = "TableQueueTasksLate"
STALLED = "TableQueueStalled"


def _late(queue: Queue, age: str, objective: float) -> Series:
    return {
        **queue("oldest_ready_age_seconds", age),
        **queue("objective_seconds", flat(objective, 60)),
    }


TASKS_LATE = (
    scenario(
        "late: past five objectives for five minutes, then held for five more",
        _late(P, line(flat(0, 10), flat(310, 10), flat(0, 20)), 60),
        silent(LATE, 14.5),
        shows(
            LATE,
            15.5,
            P.labels(),
            description="Queue payment of database main: the longest-overdue task has been due "
            "for 5m 10s; its objective is 1m 0s.",
            value="5m 10s",
            objective="1m 0s",
            dashboard_url=DASHBOARD,
        ),
        fires(LATE, 24, P.labels()),
        quiet(LATE, 26),
    ),
    scenario(
        "not late: below five objectives, without objective, a short spike",
        _late(Queue("edge"), flat(299, 60), 60),
        Queue("unset")("oldest_ready_age_seconds", flat(90_000, 60)),
        _late(Queue("spike"), line(flat(0, 10), flat(400, 4), flat(0, 46)), 60),
        silent(LATE, 59),
    ),
    scenario(
        "late: teams that share all names but one label stay apart; labels may be missing",
        _late(P, flat(900, 60), 60),
        _late(Queue(cluster="us"), flat(10, 60), 3600),
        _late(Queue(namespace="other"), flat(10, 60), 3600),
        _late(Queue(job="other"), flat(10, 60), 3600),
        _late(Queue(cluster="", namespace="", task_type=""), flat(900, 60), 60),
        fires(LATE, 30, P.labels(), Queue(cluster="", namespace="").labels()),
    ),
    scenario(
        "late: a queue's name may hold a slash and a space",
        _late(Queue("jobs/high prio"), flat(900, 60), 60),
        shows(
            LATE,
            10,
            Queue("jobs/high prio").labels(),
            description="Queue jobs/high prio of database main: the longest-overdue task has been "
            "due for 15m 0s; its objective is 1m 0s.",
            value="15m 0s",
            objective="1m 0s",
            dashboard_url=DASHBOARD.replace("payment", "jobs%2Fhigh+prio"),
        ),
    ),
)


def _idle(queue: Queue, minutes: float = 200) -> Series:
    return queue.counters(flat(0, minutes))


def _long_work(queue: Queue, running: str) -> Series:
    """A task waits while all workers are busy with one attempt each."""
    return {
        **_idle(queue),
        **queue.tasks(ready=flat(5, 200), processing=flat(4, 200)),
        **queue("oldest_ready_age_seconds", grow(0, 60, 200)),
        **queue("oldest_processing_age_seconds", running),
        **queue("lease_reclaims_total", flat(0, 200)),
    }


STALLED_QUEUES = (
    scenario(
        "stalled: the first task after quiet hours is not taken",
        _idle(P),
        P.tasks(ready=line(flat(0, 60), flat(1, 140))),
        P("oldest_ready_age_seconds", line(flat(0, 60), grow(0, 60, 20), flat(0, 120))),
        P("objective_seconds", flat(60, 200)),
        silent(STALLED, 72),
        shows(
            STALLED,
            73,
            P.labels(),
            description="Queue payment of database main: a task could have been claimed for "
            "13m 0s, and no attempt ended in the last 10m.",
            value="13m 0s",
            objective="1m 0s",
            dashboard_url=DASHBOARD,
        ),
        fires(STALLED, 84, P.labels()),
        quiet(STALLED, 86),
    ),
    scenario(
        "stalled: a busy queue loses all its workers",
        P.counters(line(grow(0, 20, 10), flat(200, 100))),
        P.tasks(
            ready=line(flat(0, 10), grow(1, 20, 100)), processing=line(flat(3, 10), flat(0, 100))
        ),
        P("oldest_ready_age_seconds", line(flat(0, 10), grow(0, 60, 100))),
        P("oldest_expired_age_seconds", flat(0, 110)),
        silent(STALLED, 21.5),
        fires(STALLED, 23.5, P.labels()),
    ),
    scenario(
        "stalled: nothing is ready, but every claim has expired and nobody takes it again",
        P.counters(line(grow(0, 20, 10), flat(200, 100))),
        P.tasks(expired=line(flat(0, 10), flat(5, 100))),
        P("oldest_ready_age_seconds", flat(0, 110)),
        P("oldest_expired_age_seconds", line(flat(0, 10), grow(0, 60, 100))),
        fires(STALLED, 24, P.labels()),
    ),
    scenario(
        "stalled: a crash loop keeps tasks in processing, but none ends",
        _idle(P),
        P.tasks(ready=flat(9, 200), processing=flat(3, 200)),
        P("oldest_ready_age_seconds", grow(0, 60, 200)),
        P("oldest_processing_age_seconds", flat(100, 200)),
        P("lease_reclaims_total", line(flat(0, 3), grow(1, 1, 197))),
        fires(STALLED, 24, P.labels()),
    ),
    scenario(
        "stalled: operators cancel tasks, which is no attempt that ended",
        P.counters(flat(0, 100), cancelled=grow(0, 10, 100)),
        P.tasks(ready=flat(900, 100)),
        P("oldest_ready_age_seconds", grow(0, 60, 100)),
        fires(STALLED, 20, P.labels()),
    ),
    scenario(
        "stalled: a library without finish times, leases and attempts",
        P.tasks(ready=grow(1, 2, 100)),
        P("oldest_ready_age_seconds", grow(100, 56.5, 100)),
        silent(STALLED, 11),
        fires(STALLED, 14, P.labels()),
    ),
    scenario(
        "stalled: a row left in processing for hours does not hide it, a long lease does",
        _long_work(P, flat(4000, 200)),
        _long_work(Queue("leased"), grow(3000, 60, 200)),
        Queue("leased")("lease_seconds", flat(20_000, 200)),
        fires(STALLED, 30, P.labels()),
        fires(STALLED, 120, P.labels()),
    ),
    scenario(
        "not stalled: long work, low traffic, a starved head, a library that deletes what is done",
        _long_work(Queue("long"), flat(3000, 200)),
        Queue("low").counters(line(flat(0, 25), flat(1, 30), flat(2, 145))),
        Queue("low").tasks(ready=line(flat(0, 24), flat(1, 1), flat(0, 175))),
        Queue("low")("oldest_ready_age_seconds", flat(0, 200)),
        Queue("starved").counters(grow(0, 6, 200)),
        Queue("starved").tasks(ready=flat(1, 200)),
        Queue("starved")("oldest_ready_age_seconds", grow(0, 60, 200)),
        Queue("retrying").counters(flat(0, 200), retries=grow(0, 6, 200)),
        Queue("retrying").tasks(ready=flat(1, 200)),
        Queue("retrying")("oldest_ready_age_seconds", grow(0, 60, 200)),
        Queue("young").counters(flat(0, 200)),
        Queue("young").tasks(ready=flat(1, 200), expired=flat(1, 200)),
        Queue("young")("oldest_ready_age_seconds", flat(400, 200)),
        Queue("young")("oldest_expired_age_seconds", flat(400, 200)),
        # Work goes on, seen only by an oldest task that ages more slowly than the clock runs.
        Queue("deletes")("tasks", flat(900, 200), status="ready"),
        Queue("deletes")("oldest_ready_age_seconds", grow(0, 48, 200)),
        Queue("deletes")("finished_total", flat(0, 200), outcome="failed"),
        silent(STALLED, 100),
    ),
    scenario(
        "not stalled: just installed beside a slow backlog",
        P.counters(line("_x9", flat(0, 8), flat(1, 10))),
        P.tasks(ready=line("_x9", flat(9, 18))),
        P("oldest_ready_age_seconds", line("_x9", grow(2000, 60, 18))),
        silent(STALLED, 22),
    ),
)

SCENARIOS: tuple[Scenario, ...] = (*TASKS_LATE, *STALLED_QUEUES)
