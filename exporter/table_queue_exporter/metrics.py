"""Every metric's name, type, help and labels: the one place that names them."""

from dataclasses import dataclass
from typing import Literal

PREFIX = "table_queue_"

Kind = Literal["gauge", "counter", "histogram"]

DATABASE = ("database",)
QUEUE = ("database", "queue")
TYPE = ("database", "queue", "task_type")
TABLE = ("database", "table")


@dataclass(frozen=True)
class Metric:
    """One metric family.

    ``labels`` in the order in which they are written; ``task_type`` is left off where a queue's
    model has none. ``absent`` says when the family has no sample although the exporter runs.
    ``merge`` says how groups that share a label are put together.
    """

    short_name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    absent: str = ""
    merge: Literal["sum", "max"] = "max"

    @property
    def name(self) -> str:
        """The full name, prefix and ``_total`` included."""
        return PREFIX + self.short_name


STALE = "no poll succeeded within `stale_after`"

TASKS = Metric(
    "tasks",
    "gauge",
    "Live tasks by status (ready, delayed, blocked, processing, expired), as of the last poll.",
    (*TYPE, "status"),
    f"{STALE}; the bounded read did not reach the task type; `expired` without a lease, "
    "`processing` without such a predicate",
    merge="sum",
)
RECENTLY_FAILED_TASKS = Metric(
    "recently_failed_tasks",
    "gauge",
    "Tasks that failed within failed_window_seconds, as of the last poll.",
    TYPE,
    f"{STALE}; no `failed` predicate or `finished_at`, or no index on `finished_at` of failed rows",
    merge="sum",
)
FAILED_WINDOW_SECONDS = Metric(
    "failed_window_seconds",
    "gauge",
    "Window of recently_failed_tasks; from the configuration.",
    QUEUE,
)
OLDEST_TASK_AGE = Metric(
    "oldest_task_age_seconds",
    "gauge",
    "Seconds since the oldest waiting task was enqueued, as of the last poll; 0 when none waits.",
    TYPE,
    f"{STALE}; the bounded read did not reach the oldest task",
)
OLDEST_READY_AGE = Metric(
    "oldest_ready_age_seconds",
    "gauge",
    "Seconds since the longest-overdue ready task became due, as of the last poll; "
    "0 when none is due.",
    TYPE,
    f"{STALE}; no index proves which task is the longest overdue",
)
OLDEST_PROCESSING_AGE = Metric(
    "oldest_processing_age_seconds",
    "gauge",
    "Seconds since the oldest running attempt began, as of the last poll; 0 when none runs.",
    TYPE,
    f"{STALE}; no `processing` predicate, or neither `started_at` nor a fixed lease",
)
OLDEST_EXPIRED_AGE = Metric(
    "oldest_expired_age_seconds",
    "gauge",
    "Seconds since the oldest lease ran out that nobody took again, as of the last poll; "
    "0 when none has.",
    TYPE,
    f"{STALE}; no lease",
)
RETRYING_TASKS = Metric(
    "retrying_tasks",
    "gauge",
    "Waiting tasks that have been attempted before, as of the last poll.",
    TYPE,
    f"{STALE}; no `attempts`; the waiting tasks were not all counted",
    merge="sum",
)
ATTEMPTS_MAX = Metric(
    "attempts_max",
    "gauge",
    "Highest attempt count among live tasks, as of the last poll.",
    TYPE,
    f"{STALE}; no `attempts`; the live tasks were not all read",
)
COUNT_LIMITED = Metric(
    "count_limited",
    "gauge",
    "1 when that count hit its bound and is a lower bound.",
    (*TYPE, "status"),
    "as `tasks` and `recently_failed_tasks`",
)
TASK_TYPES_LIMITED = Metric(
    "task_types_limited",
    "gauge",
    "1 when more task types were seen than max_task_types: the rest is summed under _other.",
    QUEUE,
    "the model has no `task_type`",
)
QUEUES_LIMITED = Metric(
    "queues_limited",
    "gauge",
    "1 when the table holds more queues than max_queues: the rest is summed under _other.",
    TABLE,
    "the model has no `queue` column",
)
LAST_ENQUEUED = Metric(
    "last_enqueued_timestamp_seconds",
    "gauge",
    "Unix time at which the newest task was enqueued, as of the last poll.",
    QUEUE,
    f"{STALE}; no index on `enqueued_at`; the table holds no task",
)
LAST_FINISHED = Metric(
    "last_finished_timestamp_seconds",
    "gauge",
    "Unix time at which the newest finished task finished, as of the last poll.",
    QUEUE,
    f"{STALE}; no `finished_at` or no index on it; the table holds no finished task",
)
NO_FINISH = "no `finished_at`, outcome predicate or index on the finish time"
ENQUEUED = Metric(
    "enqueued_total",
    "counter",
    "Tasks enqueued, each counted once.",
    TYPE,
    "no index on `enqueued_at`",
)
FINISHED = Metric(
    "finished_total",
    "counter",
    "Tasks that reached a terminal status, each counted once.",
    (*TYPE, "outcome"),
    NO_FINISH,
)
ATTEMPTS = Metric(
    "attempts_total",
    "counter",
    "Attempts begun.",
    TYPE,
    f"{NO_FINISH}; no `attempts` counted at claim; stands still while live tasks are too many "
    "to sum",
)
RETRIES = Metric(
    "retries_total",
    "counter",
    "Attempts begun after a failure or a release.",
    TYPE,
    "as `attempts_total`",
)
LEASE_RECLAIMS = Metric(
    "lease_reclaims_total",
    "counter",
    "Attempts that took over an expired lease.",
    TYPE,
    "no `id`, lease or `attempts` counted at claim, or no index on them",
)
PROCESSING_SECONDS = Metric(
    "processing_seconds",
    "histogram",
    "Start to finish of the final attempt of finished tasks.",
    (*TYPE, "outcome"),
    f"{NO_FINISH}; no `started_at`",
)
WAIT_SECONDS = Metric(
    "wait_seconds",
    "histogram",
    "Due to start of the final attempt of finished tasks.",
    TYPE,
    f"{NO_FINISH}; no `started_at`",
)
EVENTS_EXACT = Metric(
    "events_exact",
    "gauge",
    "1 while the event counters are exact; docs/exactness.md says when they are not.",
    QUEUE,
    "no event can be counted",
)
CLAMPED_VALUES = Metric(
    "clamped_values_total",
    "counter",
    "Ages and durations that were negative or absurd and were put to 0 or to the limit.",
    QUEUE,
)
OBJECTIVE_SECONDS = Metric(
    "objective_seconds",
    "gauge",
    "A task should be taken within this; from the configuration.",
    QUEUE,
    "not configured",
)
LEASE_SECONDS = Metric(
    "lease_seconds", "gauge", "Length of a lease; from the configuration.", QUEUE, "not configured"
)
MAX_RUNTIME_SECONDS = Metric(
    "max_runtime_seconds",
    "gauge",
    "An attempt should not run longer than this; from the configuration.",
    QUEUE,
    "not configured",
)
MAX_SILENCE_SECONDS = Metric(
    "max_silence_seconds",
    "gauge",
    "A task should be enqueued at least this often; from the configuration.",
    QUEUE,
    "not configured",
)
ATTEMPTS_LIMIT = Metric(
    "attempts_limit",
    "gauge",
    "Attempts after which a task fails for good; from the configuration.",
    QUEUE,
    "not configured",
)
FAILED_TOLERATED = Metric(
    "failed_tolerated",
    "gauge",
    "Recently failed tasks that are no reason to worry; from the configuration.",
    QUEUE,
    "not configured",
)
INFO = Metric("info", "gauge", "The table behind a queue.", (*QUEUE, "table", "preset"))
UP = Metric("up", "gauge", "1 when the last poll succeeded and is not stale.", QUEUE)
POLL_DURATION = Metric(
    "poll_duration_seconds",
    "gauge",
    "Duration of the last poll.",
    QUEUE,
    "no poll has ended yet",
)
POLL_INTERVAL = Metric(
    "poll_interval_seconds",
    "gauge",
    "Present pace of polls; longer than configured when polls cost more than their budget.",
    QUEUE,
)
POLL_INTERVAL_CONFIGURED = Metric(
    "poll_interval_configured_seconds",
    "gauge",
    "Pace of polls; from the configuration.",
    QUEUE,
)
LAST_SUCCESS = Metric(
    "last_success_timestamp_seconds",
    "gauge",
    "Unix time at which the last good poll ended.",
    QUEUE,
    "no poll has succeeded yet",
)
POLLS = Metric("polls_total", "counter", "Polls begun.", QUEUE)
POLL_ERRORS = Metric(
    "poll_errors_total", "counter", "Polls that failed, by reason.", (*QUEUE, "reason")
)
NO_STATISTICS = f"{STALE}; on a standby, whose statistics read 0"
TABLE_BYTES = Metric(
    "table_bytes", "gauge", "Size of the table with its indexes and TOAST.", TABLE, STALE
)
DEAD_ROWS = Metric(
    "dead_rows", "gauge", "Dead row versions, as the server estimates.", TABLE, NO_STATISTICS
)
LIVE_ROWS = Metric(
    "live_rows", "gauge", "Live rows, as the server estimates.", TABLE, NO_STATISTICS
)
LAST_AUTOVACUUM = Metric(
    "last_autovacuum_timestamp_seconds",
    "gauge",
    "Unix time of the table's last autovacuum; the earliest of its partitions'.",
    TABLE,
    f"{NO_STATISTICS}; never vacuumed",
)
ROWS_INSERTED = Metric(
    "rows_inserted_total",
    "counter",
    "Rows inserted, rolled back ones included.",
    TABLE,
    "on a standby, until a primary was read",
)
ROWS_DELETED = Metric(
    "rows_deleted_total",
    "counter",
    "Rows deleted, rolled back ones included.",
    TABLE,
    "on a standby, until a primary was read",
)
XMIN_HORIZON_TRANSACTIONS = Metric(
    "xmin_horizon_age_transactions",
    "gauge",
    "Transactions since the oldest one that vacuum must spare, by who holds it "
    "(session, prepared, slot, standby).",
    (*DATABASE, "holder"),
    "the role may not see it (pg_read_all_stats)",
)
XMIN_HORIZON_SECONDS = Metric(
    "xmin_horizon_age_seconds",
    "gauge",
    "Seconds since the oldest transaction began that vacuum must spare, by who holds it "
    "(session, prepared).",
    (*DATABASE, "holder"),
    "the role may not see it (pg_read_all_stats)",
)
DATABASE_UP = Metric("database_up", "gauge", "1 when the database answers.", DATABASE)
DATABASE_IN_RECOVERY = Metric(
    "database_in_recovery",
    "gauge",
    "1 when the server is a standby.",
    DATABASE,
    "the database does not answer",
)
BUILD_INFO = Metric(
    "exporter_build_info",
    "gauge",
    "The running version.",
    ("version", "python_version"),
)
RELOAD_SUCCESSFUL = Metric(
    "exporter_config_last_reload_successful", "gauge", "1 when the last reload succeeded."
)
RELOAD_TIMESTAMP = Metric(
    "exporter_config_last_reload_success_timestamp_seconds",
    "gauge",
    "Unix time of the last successful reload.",
)
STATE_WRITE_ERRORS = Metric(
    "exporter_state_write_errors_total",
    "counter",
    "States that could not be saved; the counters stand still until one can.",
)
SERIES_DROPPED = Metric(
    "exporter_series_dropped_total",
    "counter",
    "Series left off a rendered page because max_series was reached.",
)

METRICS: tuple[Metric, ...] = (
    TASKS,
    RECENTLY_FAILED_TASKS,
    FAILED_WINDOW_SECONDS,
    OLDEST_TASK_AGE,
    OLDEST_READY_AGE,
    OLDEST_PROCESSING_AGE,
    OLDEST_EXPIRED_AGE,
    RETRYING_TASKS,
    ATTEMPTS_MAX,
    COUNT_LIMITED,
    TASK_TYPES_LIMITED,
    QUEUES_LIMITED,
    LAST_ENQUEUED,
    LAST_FINISHED,
    ENQUEUED,
    FINISHED,
    ATTEMPTS,
    RETRIES,
    LEASE_RECLAIMS,
    PROCESSING_SECONDS,
    WAIT_SECONDS,
    EVENTS_EXACT,
    CLAMPED_VALUES,
    OBJECTIVE_SECONDS,
    LEASE_SECONDS,
    MAX_RUNTIME_SECONDS,
    MAX_SILENCE_SECONDS,
    ATTEMPTS_LIMIT,
    FAILED_TOLERATED,
    INFO,
    UP,
    POLL_DURATION,
    POLL_INTERVAL,
    POLL_INTERVAL_CONFIGURED,
    LAST_SUCCESS,
    POLLS,
    POLL_ERRORS,
    TABLE_BYTES,
    DEAD_ROWS,
    LIVE_ROWS,
    LAST_AUTOVACUUM,
    ROWS_INSERTED,
    ROWS_DELETED,
    XMIN_HORIZON_TRANSACTIONS,
    XMIN_HORIZON_SECONDS,
    DATABASE_UP,
    DATABASE_IN_RECOVERY,
    BUILD_INFO,
    RELOAD_SUCCESSFUL,
    RELOAD_TIMESTAMP,
    STATE_WRITE_ERRORS,
    SERIES_DROPPED,
)
"""Every family, in the order in which pages and documents show them."""
