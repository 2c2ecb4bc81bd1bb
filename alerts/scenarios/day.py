"""Long stories: six hours of slow faults, and a healthy day of many queues."""

from __future__ import annotations

from alerts.scenarios import tables, watchers, workers
from alerts.scenarios.dsl import Queue, Scenario, Series, flat, gone, grow, line, scenario, silent

DAY = 24 * 60


def _hours(*parts: tuple[float, float]) -> str:
    """Return a counter that grows by so many a minute for so many hours, one part after another."""
    total = 0.0
    written = []
    for hours, per_minute in parts:
        written.append(grow(total, per_minute, hours * 60))
        total += per_minute * hours * 60
    return line(*written)


def _watched(queue: Queue, objective: float) -> Series:
    """Return what every queue has all day."""
    return {
        **queue("up", flat(1, DAY)),
        **queue("objective_seconds", flat(objective, DAY)),
        **queue("oldest_expired_age_seconds", flat(0, DAY)),
    }


def _busy() -> tuple[Series, ...]:
    """Day and night traffic, 5 % retries, a deploy at 10:00, a crash of a worker at 20:00."""
    queue = Queue("busy")
    retries = line(_hours((10, 5)), grow(3000, 35, 2), grow(3070, 5, 14 * 60 - 2))
    return (
        _watched(queue, 60),
        queue.counters(_hours((7, 10), (12, 200), (5, 20)), retries=retries),
        queue.tasks(
            ready=line(flat(1, 420), flat(12, 720), flat(2, 300)),
            delayed=line(flat(2, 420), flat(25, 720), flat(3, 300)),
            processing=line(flat(1, 420), flat(18, 720), flat(2, 300)),
        ),
        queue("retrying_tasks", line(flat(2, 420), flat(25, 720), flat(3, 300))),
        queue("attempts_max", flat(3, DAY)),
        queue("oldest_ready_age_seconds", line(flat(2, 600), flat(90, 4), flat(3, DAY - 604))),
        queue("oldest_processing_age_seconds", flat(20, DAY)),
        queue("lease_seconds", flat(300, DAY)),
        queue("lease_reclaims_total", line(flat(0, 1200), flat(10, DAY - 1200))),
        queue("recently_failed_tasks", flat(0, DAY)),
        queue("count_limited", flat(0, DAY), status="ready"),
    )


def _nightly() -> tuple[Series, ...]:
    """Thousands of tasks at 02:00, worked off by 02:40; else nothing."""
    queue = Queue("nightly")
    return (
        _watched(queue, 3600),
        queue.counters(line(flat(0, 120), grow(0, 250, 40), flat(10_000, DAY - 160))),
        queue.tasks(
            ready=line(flat(0, 120), grow(10_000, -250, 40), flat(0, DAY - 160)),
            processing=line(flat(0, 120), flat(20, 40), flat(0, DAY - 160)),
        ),
        queue("oldest_ready_age_seconds", line(flat(0, 120), grow(0, 60, 40), flat(0, DAY - 160))),
        queue("last_enqueued_timestamp_seconds", line(flat(-79_200, 120), flat(7200, DAY - 120))),
        queue("max_silence_seconds", flat(93_600, DAY)),
    )


def _long() -> tuple[Series, ...]:
    """Half an hour for each task, four at a time, from 09:00 to 15:00."""
    queue = Queue("long")
    done = line(flat(0, 570), *(flat(4 * n, 30) for n in range(1, 12)), flat(48, DAY - 900))
    return (
        _watched(queue, 14_400),
        queue.counters(done),
        queue.tasks(
            ready=line(
                flat(0, 540), *(flat(44 - 4 * n, 30) for n in range(12)), flat(0, DAY - 900)
            ),
            processing=line(flat(0, 540), flat(4, 360), flat(0, DAY - 900)),
        ),
        queue("oldest_ready_age_seconds", line(flat(0, 540), grow(0, 60, 330), flat(0, DAY - 870))),
        queue("oldest_processing_age_seconds", line(flat(0, 540), flat(1700, 360), flat(0, 540))),
        queue("max_runtime_seconds", flat(3600, DAY)),
    )


def _deletes() -> tuple[Series, ...]:
    """A library that deletes what is done, with a busy noon and failures that stay."""
    queue = Queue("deletes", task_type="", table="public.deletes")
    return (
        _watched(queue, 300),
        queue.info(DAY),
        queue("finished_total", _hours((24, 0.05)), outcome="failed"),
        queue("recently_failed_tasks", flat(3, DAY)),
        queue("failed_tolerated", flat(10, DAY)),
        queue("tasks", line(flat(5, 700), flat(900, 60), flat(5, DAY - 760)), status="ready"),
        queue("tasks", flat(0, DAY), status="processing"),
        queue("oldest_ready_age_seconds", line(flat(5, 700), flat(700, 60), flat(5, DAY - 760))),
        queue("rows_deleted_total", _hours((24, 3000))),
        queue("dead_rows", flat(30_000, DAY)),
        queue("live_rows", flat(100, DAY)),
        queue("last_autovacuum_timestamp_seconds", grow(-600, 60, DAY)),
    )


def _bare() -> tuple[Series, ...]:
    """No objective, lease, task type, attempts or finish times; old tasks, many of them."""
    queue = Queue("bare", task_type="")
    return (
        queue("up", flat(1, DAY)),
        queue("tasks", flat(5000, DAY), status="ready"),
        queue("tasks", flat(3, DAY), status="processing"),
        queue("oldest_task_age_seconds", flat(90_000, DAY)),
        queue("oldest_ready_age_seconds", flat(90_000, DAY)),
    )


def _exporter() -> tuple[Series, ...]:
    """A restart at 15:00, a failover of a minute at 18:00, a backup of twenty minutes at 03:00."""
    queue = Queue()
    up = line(flat(1, 900), gone(2), flat(1, DAY - 902))
    return (
        queue("exporter_build_info", up),
        queue.target(line(flat(1, 900), flat(0, 2), flat(1, DAY - 902))),
        queue("up", line(flat(1, 900), gone(2), flat(1, 178), flat(0, 1), flat(1, DAY - 1081))),
        queue(
            "database_up",
            line(flat(1, 900), gone(2), flat(1, 178), flat(0, 1), flat(1, DAY - 1081)),
        ),
        queue.counters(line(grow(9000, 30, 900), gone(2), grow(36_060, 30, DAY - 902))),
        queue("xmin_horizon_age_transactions", flat(40_000, DAY), holder="session"),
        queue(
            "xmin_horizon_age_seconds",
            line(flat(1, 180), grow(0, 60, 20), flat(1, DAY - 200)),
            holder="session",
        ),
        queue("exporter_config_last_reload_successful", up),
        queue("exporter_state_write_errors_total", line(flat(0, 500), flat(1, DAY - 500))),
    )


SCENARIOS: tuple[Scenario, ...] = (
    scenario(
        "six hours: a lease that is slightly too long, an unwatched queue, a busy library",
        *workers.six_hours_of_leases(),
        *watchers.six_hours_unwatched(),
        *tables.hours_of_deletes(),
    ),
    scenario(
        "a healthy day raises nothing",
        *_busy(),
        *_nightly(),
        *_long(),
        *_deletes(),
        *_bare(),
        *_exporter(),
        silent("*", DAY - 1),
        pair=False,
    ),
)
