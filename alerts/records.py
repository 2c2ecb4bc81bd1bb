"""Recording rules: one value per queue, whatever the number of replicas.

Every series that an alert needs is aggregated here, once, over the replicas of an exporter. The
labels that stay tell installations apart: two teams may both call a queue `main/payment`.
"""

from __future__ import annotations

from alerts.model import DATABASE, QUEUE, TABLE, TYPE, Record
from alerts.thresholds import Settings, duration, number

# Gauges that need nothing but the largest value over replicas and task types.
QUEUE_GAUGES = (
    "oldest_ready_age_seconds",
    "oldest_expired_age_seconds",
    "oldest_processing_age_seconds",
    "objective_seconds",
    "lease_seconds",
    "max_runtime_seconds",
    "max_silence_seconds",
    "attempts_limit",
    "failed_tolerated",
    "count_limited",
)

TASKS = "queue:table_queue_tasks:sum"
RETRYING = "queue:table_queue_retrying_tasks:sum"
RECENTLY_FAILED = "queue:table_queue_recently_failed_tasks:sum"
CLAIMABLE_AGE = "queue:table_queue_claimable_age_seconds:max"
LAST_ENQUEUED = "queue:table_queue_last_enqueued_timestamp_seconds:max"
ATTEMPTS_MAX = "queue_type:table_queue_attempts_max:max"
HORIZON_TRANSACTIONS = "database:table_queue_xmin_horizon_age_transactions:max"
HORIZON_SECONDS = "database:table_queue_xmin_horizon_age_seconds:max"
INFO = "queue:table_queue_info:max"
ONLY_QUEUE = "table:table_queue_info:only_queue"
DEAD_ROWS = "table:table_queue_dead_rows:max"
LIVE_ROWS = "table:table_queue_live_rows:max"
AUTOVACUUM = "table:table_queue_last_autovacuum_timestamp_seconds:max"


def gauge(name: str) -> str:
    """Return the name of the record of one of `QUEUE_GAUGES`."""
    if name not in QUEUE_GAUGES:
        raise KeyError(name)
    return f"queue:table_queue_{name}:max"


class Rates:
    """Names of the records that hold a rate: each says its window, as the convention asks."""

    def __init__(self, settings: Settings) -> None:
        windows = settings.windows
        short, hour = duration(windows.rates), duration(windows.rates_quiet)
        self.type_finished = f"queue_type:table_queue_finished:increase{short}"
        self.type_retries = f"queue_type:table_queue_retries:increase{short}"
        self.type_failing = f"queue_type:table_queue_attempts_failed:increase{short}"
        self.finished = f"queue:table_queue_finished:increase{short}"
        self.finished_quiet = f"queue:table_queue_finished:increase{hour}"
        self.retries = f"queue:table_queue_retries:increase{short}"
        self.ended = f"queue:table_queue_attempts_ended:increase{short}"
        self.reclaims = f"queue:table_queue_lease_reclaims:increase{duration(windows.reclaims)}"
        self.reclaims_now = f"queue:table_queue_lease_reclaims:increase{short}"
        self.deleted = f"table:table_queue_rows_deleted:rate{duration(windows.outgrown_window)}"


def _summed(metric: str, extra: str = "") -> str:
    """Sum over task types what is the largest over replicas."""
    more = f", {extra}" if extra else ""
    return f"sum by ({QUEUE}{more}) (max by ({TYPE}{more}) ({metric}))"


def _of_table(expr: str) -> str:
    """Give a table's value its queue's name where the table holds one queue only.

    Its alerts then group with those of the queue; a table of many queues stays one alert.
    """
    value = f"max by ({TABLE}) ({expr})"
    return f"{value} * on ({TABLE}) group_left (queue) {ONLY_QUEUE}\n  or on ({TABLE}) {value}"


def gauge_records() -> list[Record]:
    """Records of the queues' gauges."""
    simple = [
        Record(gauge(name), f"max by ({QUEUE}) (table_queue_{name})") for name in QUEUE_GAUGES
    ]
    ages = f"{gauge('oldest_ready_age_seconds')}|{gauge('oldest_expired_age_seconds')}"
    # Kept by itself: the newest row may be deleted, or the table may empty, and neither makes the
    # last arrival any older. A row dated in the future must not blind the alert until then.
    seen = f"table_queue_last_enqueued_timestamp_seconds|{LAST_ENQUEUED}"
    return [
        *simple,
        Record(CLAIMABLE_AGE, f'max by ({QUEUE}) ({{__name__=~"{ages}"}})'),
        Record(
            LAST_ENQUEUED,
            f'max by ({QUEUE}) ({{__name__=~"{seen}"}} <= time())\n'
            f"  and max by ({QUEUE}) (table_queue_up)",
        ),
        Record(TASKS, _summed("table_queue_tasks", "status")),
        Record(RETRYING, _summed("table_queue_retrying_tasks")),
        Record(RECENTLY_FAILED, _summed("table_queue_recently_failed_tasks")),
        Record(ATTEMPTS_MAX, f"max by ({TYPE}) (table_queue_attempts_max)"),
    ]


def rate_records(settings: Settings) -> list[Record]:
    """Records of the queues' counters."""
    rates = Rates(settings)
    windows = settings.windows
    short, hour = duration(windows.rates), duration(windows.rates_quiet)
    failing = (
        f'{{__name__=~"{rates.type_finished}|{rates.type_retries}",outcome!~"done|cancelled"}}'
    )
    ended = f'{{__name__=~"{rates.type_finished}|{rates.type_retries}",outcome!="cancelled"}}'
    finished = f"increase(table_queue_finished_total[{short}])"
    reclaimed = "table_queue_lease_reclaims_total"
    return [
        Record(rates.type_finished, f"max by ({TYPE}, outcome) ({finished})"),
        Record(
            rates.type_retries, f"max by ({TYPE}) (increase(table_queue_retries_total[{short}]))"
        ),
        Record(rates.type_failing, f"sum by ({TYPE}) ({failing})"),
        Record(rates.finished, f"sum by ({QUEUE}, outcome) ({rates.type_finished})"),
        Record(
            rates.finished_quiet,
            _summed(f"increase(table_queue_finished_total[{hour}])", "outcome"),
        ),
        Record(rates.retries, f"sum by ({QUEUE}) ({rates.type_retries})"),
        # Only where done tasks are visible: a library that deletes them shows its failures alone,
        # and their sum would be taken for the pace of the whole queue.
        Record(
            rates.ended,
            f"sum by ({QUEUE}) ({ended})\n"
            f'  and ignoring (outcome) {rates.finished}{{outcome="done"}}',
        ),
        Record(rates.reclaims, _summed(f"increase({reclaimed}[{duration(windows.reclaims)}])")),
        Record(rates.reclaims_now, f"max by ({QUEUE}) (increase({reclaimed}[{short}]))"),
    ]


def table_records(settings: Settings) -> list[Record]:
    """Records of tables and databases, which have no queue label of their own."""
    rates = Rates(settings)
    window = duration(settings.windows.outgrown_window)
    holder = f"{DATABASE}, holder"
    return [
        Record(INFO, f"max by ({QUEUE}, table) (table_queue_info)"),
        Record(ONLY_QUEUE, f"{INFO} and on ({TABLE}) count by ({TABLE}) ({INFO}) == 1"),
        Record(DEAD_ROWS, _of_table("table_queue_dead_rows")),
        Record(LIVE_ROWS, _of_table("table_queue_live_rows")),
        Record(AUTOVACUUM, _of_table("table_queue_last_autovacuum_timestamp_seconds")),
        Record(rates.deleted, _of_table(f"rate(table_queue_rows_deleted_total[{window}])")),
        Record(
            HORIZON_TRANSACTIONS,
            f"max by ({holder}) (table_queue_xmin_horizon_age_transactions)",
        ),
        Record(HORIZON_SECONDS, f"max by ({holder}) (table_queue_xmin_horizon_age_seconds)"),
    ]


def tasks(status: str, offset: float = 0) -> str:
    """Return the number of a queue's tasks in the statuses, now or some time ago."""
    matcher = f'status=~"{status}"' if "|" in status else f'status="{status}"'
    ago = f" offset {duration(offset)}" if offset else ""
    return f"sum without (status) ({TASKS}{{{matcher}}}{ago})"


__all__ = ["Rates", "gauge", "gauge_records", "number", "rate_records", "table_records", "tasks"]
