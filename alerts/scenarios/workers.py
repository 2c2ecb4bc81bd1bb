"""Scenarios of workers and their leases."""

from __future__ import annotations

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
    quiet,
    scenario,
    shows,
    silent,
)

P = Queue()
RETURNING = "TableQueueWorkersNotReturning"
EXPIRED = "TableQueueLeasesNotReclaimed"
RECLAIMS = "TableQueueLeaseReclaims"
LEASE = "TableQueueLeaseTooShort"
STUCK = "TableQueueTaskStuck"

NOT_RETURNING = (
    scenario(
        "not returning: workers take and do not return, the backlog stands",
        P.counters(line(grow(0, 20, 60), flat(1200, 60))),
        P.tasks(
            ready=flat(20, 120),
            processing=line(flat(4, 60), flat(7, 60)),
            expired=line(flat(0, 60), flat(6, 60)),
        ),
        silent(RETURNING, 65),
        shows(
            RETURNING,
            67,
            P.labels(),
            description="Queue payment of database main: 13 tasks are in flight, many more than "
            "15m ago, while fewer attempts end and the backlog does not shrink.",
            value="13",
            dashboard_url=DASHBOARD,
        ),
        fires(RETURNING, 83, P.labels()),
        quiet(RETURNING, 86),
    ),
    scenario(
        "not returning: half of a hundred busy workers more, a fifth less done",
        P.counters(line(grow(0, 200, 60), grow(12_000, 160, 60))),
        P.tasks(ready=flat(20, 120), processing=line(flat(100, 60), grow(157, 4, 60))),
        silent(RETURNING, 65),
        fires(RETURNING, 72, P.labels()),
    ),
    scenario(
        "returning: a morning ramp, a small rise, a shrinking backlog, a batch of long tasks",
        Queue("ramp").counters(line(grow(0, 4, 60), grow(240, 40, 60))),
        Queue("ramp").tasks(
            ready=line(flat(0, 60), flat(30, 60)), processing=line(flat(2, 60), flat(20, 60))
        ),
        Queue("rise").counters(line(grow(0, 200, 60), grow(12_000, 160, 60))),
        Queue("rise").tasks(
            ready=flat(20, 120),
            processing=line(flat(60, 60), flat(140, 60)),
            expired=line(flat(40, 60), flat(0, 60)),
        ),
        Queue("few").counters(line(grow(0, 20, 60), flat(1200, 60))),
        Queue("few").tasks(ready=flat(20, 120), processing=line(flat(0, 60), flat(4, 60))),
        Queue("same").counters(line(grow(0, 200, 60), grow(12_000, 188, 60))),
        Queue("same").tasks(ready=flat(20, 120), processing=line(flat(2, 60), flat(20, 60))),
        Queue("shrinks").counters(line(grow(0, 200, 60), grow(12_000, 160, 60))),
        Queue("shrinks").tasks(
            ready=grow(9000, -60, 120), processing=line(flat(2, 60), flat(20, 60))
        ),
        Queue("long").counters(flat(0, 120)),
        Queue("long").tasks(processing=line(flat(0, 60), flat(20, 60))),
        Queue("deletes").tasks(processing=line(flat(0, 60), flat(20, 60))),
        silent(RETURNING, 95),
    ),
    scenario(
        "returning: ten minutes of a slow neighbour are over before the fifth minute of proof",
        P.counters(line(grow(0, 20, 60), grow(1200, 4, 4), grow(1216, 20, 56))),
        P.tasks(ready=flat(20, 120), processing=line(flat(4, 60), flat(20, 4), flat(4, 56))),
        silent(RETURNING, 95),
    ),
)

NOT_RECLAIMED = (
    scenario(
        "not reclaimed: an expired lease of ten minutes, five minutes long",
        P("oldest_expired_age_seconds", line(flat(0, 10), grow(0, 60, 50))),
        silent(EXPIRED, 25),
        shows(
            EXPIRED,
            26,
            P.labels(),
            description="Queue payment of database main: the oldest expired lease ran out "
            "16m 0s ago.",
            value="16m 0s",
            dashboard_url=DASHBOARD,
        ),
    ),
    scenario(
        "reclaimed: taken again after nine minutes, again and again",
        P("oldest_expired_age_seconds", flat(590, 60)),
        silent(EXPIRED, 59),
    ),
)


def _reclaims(queue: Queue, reclaims: str, done: str) -> Series:
    return {**queue("lease_reclaims_total", reclaims), **queue.counters(done)}


LEASE_RECLAIMS = (
    scenario(
        "reclaims: one every two minutes beside ten tasks a minute",
        _reclaims(P, line(flat(0, 20), grow(1, 0.5, 60)), grow(0, 10, 80)),
        silent(RECLAIMS, 36),
        shows(
            RECLAIMS,
            56,
            P.labels(),
            description="Queue payment of database main: 15 leases were taken over in the last "
            "30m: workers die, or the lease is shorter than the work.",
            value="15",
            dashboard_url=DASHBOARD,
        ),
        fires(RECLAIMS, 43, P.labels()),
    ),
    scenario(
        "reclaims: four in half an hour on a queue that does little else; 1.7 % on a busy one",
        _reclaims(P, grow(0, 0.06667, 120), grow(0, 0.1, 120)),
        _reclaims(Queue(task_type="u"), grow(0, 0.06667, 120), grow(0, 0.1, 120)),
        _reclaims(Queue("busy"), grow(0, 1.7, 120), grow(0, 100, 120)),
        fires(RECLAIMS, 80, P.labels(), Queue("busy").labels()),
    ),
    scenario(
        "no reclaims: two crashes, one with a large batch in hand, a background of 0.6 %, too few",
        _reclaims(Queue("crash"), line(flat(0, 20), flat(2, 100)), grow(0, 0.2, 120)),
        _reclaims(Queue("batch"), line(flat(0, 20), flat(50, 100)), grow(0, 10, 120)),
        _reclaims(Queue("background"), grow(0, 0.6, 120), grow(0, 100, 120)),
        _reclaims(Queue("few"), grow(0, 0.08, 120), grow(0, 0.2, 120)),
        silent(RECLAIMS, 119),
    ),
)


def _durations(
    queue: Queue, per_hour: float, within: dict[str, float], hours: float, outcome: str = "done"
) -> Series:
    """Build a histogram whose buckets hold these shares of what ends."""
    minutes = hours * 60
    pace = per_hour / 60
    series: Series = {}
    for edge, share in {**within, "+Inf": 1.0}.items():
        values = grow(0, pace * share, minutes)
        series |= queue("processing_seconds_bucket", values, outcome=outcome, le=edge)
    return series | queue("processing_seconds_count", grow(0, pace, minutes), outcome=outcome)


_SLOW = {"120.0": 0.9, "240.0": 0.95, "300.0": 1.0}

LEASE_TOO_SHORT = (
    scenario(
        "lease too short: the slowest of a hundred take 290 of 300 seconds",
        _durations(P, 120, _SLOW, 3),
        P("lease_seconds", flat(300, 180)),
        silent(LEASE, 59),
        shows(
            LEASE,
            90,
            P.typed(),
            description="Queue payment of database main (task type t): one attempt in a hundred "
            "takes 4m 48s or longer; the lease is 5m 0s.",
            value="4m 48s",
            dashboard_url=DASHBOARD,
        ),
        fires(LEASE, 69, P.typed()),
    ),
    scenario(
        "lease too short: what is done is fast, what fails is slow, 70 of each",
        _durations(P, 70, {"120.0": 1.0, "240.0": 1.0, "300.0": 1.0}, 2),
        _durations(P, 70, {"120.0": 0.0, "240.0": 0.0, "300.0": 1.0}, 2, "failed"),
        P("lease_seconds", flat(300, 120)),
        fires(LEASE, 62, P.typed()),
    ),
    scenario(
        "lease long enough: 1 of 200 is slow, at 70 %, no fixed lease, few samples",
        _durations(Queue("rare"), 1200, {"60.0": 0.995, "240.0": 0.995, "300.0": 1.0}, 1),
        Queue("rare")("lease_seconds", flat(300, 60)),
        _durations(Queue("below"), 1200, {"180.0": 0.9, "220.0": 1.0}, 1),
        Queue("below")("lease_seconds", flat(300, 60)),
        _durations(Queue("unset"), 1200, _SLOW, 1),
        _durations(Queue("few"), 110, _SLOW, 1),
        Queue("few")("lease_seconds", flat(300, 60)),
        silent(LEASE, 50),
    ),
)


def six_hours_of_leases() -> tuple[Series | Check, ...]:
    """Tell of 26 tasks an hour, a little below the lease, and of a type that was slow long ago."""
    old = Queue(task_type="old")
    done = line(grow(0, 8, 30), flat(240, 370))
    return (
        _durations(P, 26, {"120.0": 0.9, "240.0": 0.95, "260.0": 1.0}, 400 / 60),
        old("processing_seconds_bucket", done, outcome="done", le="300.0"),
        old("processing_seconds_bucket", done, outcome="done", le="+Inf"),
        old("processing_seconds_count", done, outcome="done"),
        P("lease_seconds", flat(300, 400)),
        fires(LEASE, 330, P.typed(), old.typed()),
        fires(LEASE, 385, P.typed()),
    )


TASK_STUCK = (
    scenario(
        "stuck: an attempt of more than twenty minutes, five minutes long",
        P("oldest_processing_age_seconds", grow(0, 60, 60)),
        P("max_runtime_seconds", flat(1200, 60)),
        silent(STUCK, 25),
        shows(
            STUCK,
            26,
            P.labels(),
            description="Queue payment of database main: an attempt has been running for 26m 0s; "
            "the limit is 20m 0s.",
            value="26m 0s",
            dashboard_url=DASHBOARD,
        ),
    ),
    scenario(
        "not stuck: within the limit, and without one",
        Queue("within")("oldest_processing_age_seconds", flat(1190, 60)),
        Queue("within")("max_runtime_seconds", flat(1200, 60)),
        Queue("unset")("oldest_processing_age_seconds", grow(0, 60, 60)),
        silent(STUCK, 59),
    ),
)

SCENARIOS: tuple[Scenario, ...] = (
    *NOT_RETURNING,
    *NOT_RECLAIMED,
    *LEASE_RECLAIMS,
    *LEASE_TOO_SHORT,
    *TASK_STUCK,
)
