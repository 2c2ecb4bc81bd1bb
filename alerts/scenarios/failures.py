"""Scenarios of attempts and tasks that fail."""

from __future__ import annotations

from alerts.scenarios.dsl import (
    DASHBOARD,
    Queue,
    Scenario,
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
FAILING = "TableQueueAttemptsFailing"
SPIKE = "TableQueueFailuresSpike"
FAILURES = "TableQueueFailures"

ATTEMPTS_FAILING = (
    scenario(
        "failing: a neighbour is down, every attempt comes back, none is failed for good yet",
        P.counters(
            line(grow(0, 20, 10), flat(200, 150)), retries=line(flat(0, 10), grow(0, 2, 150))
        ),
        silent(FAILING, 24),
        shows(
            FAILING,
            60,
            P.typed(),
            description="Queue payment of database main (task type t): 100% of the attempts that "
            "ended in the last 10m failed or were given back.",
            value="100%",
            dashboard_url=DASHBOARD,
        ),
        silent(SPIKE, 60),
    ),
    scenario(
        "failing: one task type of two, from its fifteenth minute, held for five more",
        Queue(task_type="good").counters(grow(0, 100, 100)),
        P.counters(grow(0, 1, 100), retries=line(flat(0, 30), grow(0, 20, 20), flat(400, 50))),
        silent(FAILING, 45.5),
        fires(FAILING, 47, P.typed()),
        fires(FAILING, 63, P.typed()),
        quiet(FAILING, 68),
    ),
    scenario(
        "failing: seven of ten attempts, sixteen of them in the window",
        P.counters(grow(0, 0.6, 100), retries=grow(0, 0.8, 100), failed=grow(0, 0.6, 100)),
        Queue("final").counters(grow(0, 0.6, 100), failed=grow(0, 1.4, 100)),
        fires(FAILING, 60, P.typed(), Queue("final").typed()),
    ),
    scenario(
        "not failing: 55 of 100, few attempts, a deploy, a recovery, done tasks deleted, a restart",
        Queue("half").counters(grow(0, 9, 100), retries=grow(0, 11, 100)),
        Queue("few").counters(flat(0, 100), retries=grow(0, 0.8, 100)),
        Queue("deploy").counters(
            grow(0, 0.2, 100), retries=line(flat(0, 20), grow(0, 10, 3), flat(30, 77))
        ),
        Queue("recovers").counters(
            line(flat(0, 20), grow(0, 30, 30), flat(900, 50)),
            retries=line(flat(0, 20), grow(3, 30, 30), flat(903, 50)),
        ),
        Queue("cancels").counters(flat(0, 100), cancelled=grow(0, 9, 100)),
        Queue("deletes")("finished_total", grow(0, 10, 100), outcome="failed"),
        Queue("deletes")("retries_total", grow(0, 10, 100)),
        Queue("restart").counters(
            line(grow(5000, 40, 25), grow(0, 40, 75)),
            failed=line(grow(100, 2, 25), grow(0, 2, 75)),
            retries=line(grow(900, 2, 25), grow(0, 2, 75)),
        ),
        silent(FAILING, 80),
        silent(SPIKE, 80),
    ),
)

FAILURES_SPIKE = (
    scenario(
        "spike: busy, 15 of 100 tasks fail, two minutes after the tenth",
        P.counters(grow(0, 17, 140), failed=line(flat(0, 30), grow(0, 3, 20), flat(60, 90))),
        silent(SPIKE, 35),
        shows(
            SPIKE,
            44,
            P.labels(),
            description="Queue payment of database main: 15% of the tasks that finished lately "
            "failed for good.",
            value="15%",
            dashboard_url=DASHBOARD,
        ),
        fires(SPIKE, 57, P.labels()),
        quiet(SPIKE, 65),
    ),
    scenario(
        "spike: from the first tasks on, all of them fail",
        P.counters(flat(0, 60), failed=line(flat(0, 10), grow(0, 40, 50))),
        silent(SPIKE, 11.5),
        fires(SPIKE, 13.5, P.labels()),
    ),
    scenario(
        "spike: quiet, six of nine tasks of the hour fail, ten minutes apart",
        P.counters(
            line(flat(0, 65), flat(3, 85)),
            failed=line(flat(0, 60), *(flat(n, 8) for n in range(1, 7)), flat(6, 42)),
        ),
        silent(SPIKE, 93),
        fires(SPIKE, 105, P.labels()),
    ),
    scenario(
        "no spike: 9 of 100, 4 of 4, 9 tasks of a busy hour, 40 of 100 slowly, tolerated, deleted",
        Queue("nine").counters(grow(0, 91, 200), failed=grow(0, 9, 200)),
        Queue("four").counters(flat(0, 200), failed=line(flat(0, 30), flat(4, 170))),
        Queue("six").counters(grow(0, 2, 200), failed=line(flat(0, 70), flat(6, 130))),
        Queue("slow").counters(grow(0, 0.9, 200), failed=grow(0, 0.6, 200)),
        Queue("tolerant").counters(grow(0, 17, 200), failed=grow(0, 3, 200)),
        Queue("tolerant")("failed_tolerated", flat(200, 200)),
        Queue("deletes")("finished_total", grow(0, 10, 200), outcome="failed"),
        silent(SPIKE, 100),
    ),
    scenario(
        "spike: more than is tolerated; fifteen of ninety-five over two types; two quiet types",
        P.counters(grow(0, 17, 200), failed=grow(0, 3, 200)),
        P("failed_tolerated", flat(150, 200)),
        Queue("types").counters(grow(0, 4, 200), failed=grow(0, 0.75, 200)),
        Queue("types", task_type="u").counters(grow(0, 4, 200), failed=grow(0, 0.75, 200)),
        Queue("quiet").counters(flat(0, 200), failed=line(flat(0, 20), flat(3, 180))),
        Queue("quiet", task_type="u").counters(
            flat(0, 200), failed=line(flat(0, 40), flat(3, 160))
        ),
        fires(SPIKE, 70, P.labels(), Queue("types").labels(), Queue("quiet").labels()),
    ),
)

SOME_FAILURES = (
    scenario(
        "failures: one is too many where nothing is tolerated",
        P("recently_failed_tasks", line(flat(0, 10), flat(1, 50))),
        Queue(task_type="u")("recently_failed_tasks", line(flat(0, 10), flat(2, 50))),
        silent(FAILURES, 10.5),
        shows(
            FAILURES,
            11.5,
            P.labels(),
            description="Queue payment of database main: 3 tasks failed for good within the "
            "exporter's window.",
            value="3",
            dashboard_url=DASHBOARD,
        ),
    ),
    scenario(
        "failures: as many as tolerated are silent, one more is not",
        P("recently_failed_tasks", line(flat(2, 20), flat(3, 40))),
        Queue(task_type="u")("recently_failed_tasks", flat(3, 60)),
        P("failed_tolerated", flat(5, 60)),
        silent(FAILURES, 20),
        fires(FAILURES, 30, P.labels()),
    ),
)

SCENARIOS: tuple[Scenario, ...] = (*ATTEMPTS_FAILING, *FAILURES_SPIKE, *SOME_FAILURES)
