"""Scenarios of tasks that are tried again."""

from __future__ import annotations

from dataclasses import replace

from alerts.scenarios.dsl import (
    DASHBOARD,
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
POISON = "TableQueuePoisonTask"
STORM = "TableQueueRetryStorm"

_WAITING = {"ready": flat(20, 60), "delayed": flat(20, 60)}

POISON_TASK = (
    scenario(
        "poison: six attempts while few others retry",
        P("attempts_max", line(flat(1, 10), flat(6, 50))),
        P("retrying_tasks", flat(12, 60)),
        P.tasks(**_WAITING),
        silent(POISON, 24.5),
        shows(
            POISON,
            26,
            P.typed(),
            description="Queue payment of database main (task type t): a live task has been "
            "attempted 6 times.",
            value="6",
            dashboard_url=DASHBOARD,
        ),
    ),
    scenario(
        "poison: more than half of many allowed attempts; a queue without counts",
        P("attempts_max", flat(14, 60)),
        P("attempts_limit", flat(25, 60)),
        P("retrying_tasks", flat(2, 60)),
        Queue("bare")("attempts_max", flat(6, 60)),
        Queue("deep")("attempts_max", flat(6, 60)),
        Queue("deep")("retrying_tasks", flat(95, 60)),
        Queue("deep").tasks(ready=flat(800, 60), delayed=flat(95, 60)),
        fires(POISON, 30, P.typed(), Queue("bare").typed(), Queue("deep").typed()),
    ),
    scenario(
        "no poison: four attempts, many retry, a third of the allowed attempts",
        Queue("four")("attempts_max", flat(4, 60)),
        Queue("outage")("attempts_max", flat(9, 60)),
        Queue("outage")("retrying_tasks", flat(18, 60)),
        Queue("outage").tasks(**_WAITING),
        Queue("share")("attempts_max", flat(9, 60)),
        Queue("share")("retrying_tasks", flat(150, 60)),
        Queue("share").tasks(ready=flat(800, 60), delayed=flat(200, 60)),
        Queue("patient")("attempts_max", flat(9, 60)),
        Queue("patient")("attempts_limit", flat(25, 60)),
        Queue("patient")("retrying_tasks", flat(2, 60)),
        silent(POISON, 59),
    ),
)


def _storm(queue: Queue, retrying: float, fresh: float, retries: float, done: float) -> Series:
    """Tell of a queue whose figures are the sum of two task types."""
    series: Series = {}
    for half in (queue, replace(queue, task_type="u")):
        again = line(flat(0, 30), flat(retrying / 2, 60))
        series |= half("retrying_tasks", again)
        series |= half.tasks(ready=flat(fresh / 2, 90), delayed=again)
        series |= half.counters(grow(0, done / 2, 90), retries=grow(0, retries / 2, 90))
    return series


RETRY_STORM = (
    scenario(
        "storm: 30 of 40 waiting tasks have failed before",
        _storm(P, 30, 10, 3, 5),
        silent(STORM, 39.5),
        shows(
            STORM,
            41,
            P.labels(),
            description="Queue payment of database main: 30 waiting tasks have failed before.",
            value="30",
            dashboard_url=DASHBOARD,
        ),
    ),
    scenario(
        "storm: a library without counted attempts",
        P("retrying_tasks", flat(30, 60)),
        P.tasks(delayed=flat(30, 60)),
        fires(STORM, 30, P.labels()),
    ),
    scenario(
        "no storm: fifteen, four of ten, and the few of a busy queue that keeps up",
        _storm(Queue("few"), 15, 0, 3, 5),
        _storm(Queue("mixed"), 40, 60, 3, 5),
        _storm(Queue("busy"), 40, 0, 15, 85),
        silent(STORM, 60),
    ),
)

SCENARIOS: tuple[Scenario, ...] = (*POISON_TASK, *RETRY_STORM)
