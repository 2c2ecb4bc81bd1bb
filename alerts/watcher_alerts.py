"""Alerts on the table, the database and the exporter itself."""

from __future__ import annotations

from alerts.model import (
    AS_COUNT,
    AS_NUMBER,
    AS_SHARE,
    DATABASE,
    JOB,
    QUEUE,
    TABLE,
    TYPE,
    Alert,
)
from alerts.records import (
    AUTOVACUUM,
    DEAD_ROWS,
    HORIZON_SECONDS,
    HORIZON_TRANSACTIONS,
    INFO,
    LIVE_ROWS,
    Rates,
    gauge,
)
from alerts.thresholds import Settings, duration, number

_QUEUE = "Queue {{ $labels.queue }} of database {{ $labels.database }}"
_TABLE = (
    "{{ if $labels.table }}Table {{ $labels.table }}{{ else }}Queue {{ $labels.queue }}{{ end }}"
    " of database {{ $labels.database }}"
)
_DATABASE = "Database {{ $labels.database }}"
_EXPORTER = "Exporter {{ $labels.job }}"

_WATCHED = f"max by ({QUEUE}) (table_queue_up)"
_GONE = "absent(table_queue_exporter_build_info)"


def _vacuum_blocked(settings: Settings) -> Alert:
    windows = settings.windows
    held = HORIZON_SECONDS
    matchers = "cluster=%q,namespace=%q,job=%q,database=%q,holder=%q"
    labels = "$labels.cluster $labels.namespace $labels.job $labels.database $labels.holder"
    since = (
        f'{{{{ with printf "{held}{{{matchers}}}" {labels} | query }}}}'
        " for {{ . | first | value | humanizeDuration }}{{ end }}"
    )
    # Slots and standbys have no time, only transactions.
    return Alert(
        name="TableQueueVacuumBlocked",
        severity="warning",
        expr=f"{HORIZON_TRANSACTIONS}\n"
        f"  and {HORIZON_SECONDS} > {number(windows.horizon_after)}\n"
        f"or\n"
        f"{HORIZON_TRANSACTIONS} > {number(settings.levels.horizon_transactions)}\n"
        f"  unless {HORIZON_SECONDS}",
        hold=windows.horizon_for,
        summary="Something keeps vacuum from removing dead rows.",
        description=f"{_DATABASE}: the holder `{{{{ $labels.holder }}}}` has held vacuum back"
        f"{since}, by {AS_NUMBER} transactions: every claim steps over the rows that died since.",
        value=f"{AS_NUMBER} transactions",
        of_queue=False,
    )


def _bloated(settings: Settings) -> Alert:
    levels, windows = settings.levels, settings.windows
    return Alert(
        name="TableQueueBloated",
        severity="warning",
        expr=f"{DEAD_ROWS} > {number(levels.bloated_rows)}\n"
        f"  and {DEAD_ROWS} > {number(levels.bloated_share)} * {LIVE_ROWS}\n"
        f"  unless time() - {AUTOVACUUM} < {number(windows.vacuumed_within)}",
        hold=windows.bloated_for,
        summary="Dead rows pile up and no autovacuum comes.",
        description=f"{_TABLE} holds {AS_NUMBER} dead rows, and no autovacuum of it has ended "
        f"in the last {duration(windows.vacuumed_within)}.",
        value=f"{AS_NUMBER} dead rows",
    )


def _outgrown(settings: Settings) -> Alert:
    windows, rates = settings.windows, Rates(settings)
    rate = number(settings.levels.outgrown_rate)
    window = duration(windows.outgrown_window)
    finished = (
        f"sum by ({QUEUE}) (max by ({TYPE}, outcome) (rate(table_queue_finished_total[{window}])))"
    )
    # Deleted rows stand for finished tasks only where those are not to be seen: elsewhere an
    # archiver deletes them a second time.
    return Alert(
        name="TableQueueOutgrown",
        severity="info",
        expr=f"{finished} > {rate}\n"
        f"or\n"
        f"{rates.deleted} > {rate}\n"
        f'  unless on ({TABLE}) ({INFO} and on ({QUEUE}) {rates.finished}{{outcome="done"}})',
        hold=windows.outgrown_for,
        summary="The queue does the work of a message broker.",
        description=f"{_TABLE} has finished {AS_NUMBER} tasks a second for hours.",
        value=f"{AS_NUMBER} tasks a second",
    )


def _poll_failing(settings: Settings) -> Alert:
    windows = settings.windows
    window = duration(windows.poll_window)
    share = number(settings.levels.poll_share)
    queue = f"max by ({QUEUE}) (avg_over_time(table_queue_up[{window}]))"
    database = f"max by ({DATABASE}) (avg_over_time(table_queue_database_up[{window}]))"
    # Measured by the time in which the database answered, or its outage would echo here.
    return Alert(
        name="TableQueuePollFailing",
        severity="warning",
        expr=f"{queue}\n  < on ({DATABASE}) group_left () {share} * {database}",
        hold=windows.poll_for,
        summary="The exporter cannot read a queue, though the database answers.",
        description=f"{_QUEUE}: its figures were there for {AS_SHARE} of the last {window}.",
        value=AS_SHARE,
    )


def _unwatched(settings: Settings) -> Alert:
    windows = settings.windows
    return Alert(
        name="TableQueueUnwatched",
        severity="warning",
        expr=f"max by ({QUEUE}) (max_over_time(table_queue_up[{duration(windows.remembered)}]))\n"
        f"  unless {_WATCHED}\n"
        f"  unless on ({JOB}) up == 0\n"
        f"  unless on () {_GONE}",
        hold=windows.unwatched_for,
        summary="A queue that was watched is watched no more.",
        description=f"{_QUEUE} has vanished from the exporter's metrics, and no target of "
        "job {{ $labels.job }} is down: was it removed on purpose?",
    )


def _database_down(settings: Settings) -> Alert:
    windows = settings.windows
    window = duration(windows.database_window)
    return Alert(
        name="TableQueueDatabaseDown",
        severity="critical",
        expr=f"max by ({DATABASE}) (max_over_time(table_queue_database_up[{window}])) == 0",
        hold=windows.database_for,
        keep=windows.keep_page,
        summary="No exporter can reach the database.",
        description=f"{_DATABASE} has not answered job {{{{ $labels.job }}}} for at least "
        f"{duration(windows.database_window + windows.database_for)}.",
        of_queue=False,
    )


def _exporter_down(settings: Settings) -> Alert:
    windows = settings.windows
    remembered = duration(windows.remembered)
    # One alert for each job, not for each of its queues. The second arm has no labels, and is
    # there only when the first cannot tell who is missing.
    return Alert(
        name="TableQueueExporterDown",
        severity="critical",
        expr=f"count by ({JOB}) (\n"
        f"  max by ({QUEUE}) (max_over_time(table_queue_up[{remembered}]))\n"
        f"    unless {_WATCHED}\n"
        f")\n"
        f"  and on ({JOB}) up == 0\n"
        f"or on () {_GONE}",
        hold=windows.exporter_for,
        keep=windows.keep_page,
        summary="Queues have lost their last exporter: nothing is watched.",
        description="{{ if $labels.job }}" + f"{_EXPORTER} is down, and {AS_COUNT} of its queues "
        "have no other.{{ else }}No table-queue-exporter is to be seen at all.{{ end }}",
        value="{{ if $labels.job }}" + f"{AS_COUNT} queues" + "{{ end }}",
        of_queue=False,
    )


def _counts_limited(settings: Settings) -> Alert:
    return Alert(
        name="TableQueueCountsLimited",
        severity="info",
        expr=f"{gauge('count_limited')} == 1",
        hold=settings.windows.limited_for,
        summary="A count has hit its bound and is a lower bound only.",
        description=f"{_QUEUE} holds more tasks than the exporter counts. Ages are still exact.",
    )


def _reload_failed(settings: Settings) -> Alert:
    metric = "table_queue_exporter_config_last_reload_successful"
    return Alert(
        name="TableQueueConfigReloadFailed",
        severity="warning",
        expr=f"min by ({JOB}) ({metric}) == 0",
        hold=settings.windows.reload_for,
        summary="The exporter refused its new configuration and runs on with the old one.",
        description=f"{_EXPORTER}: the last reload failed; its log names every error.",
        of_queue=False,
    )


def _state_not_saved(settings: Settings) -> Alert:
    windows = settings.windows
    window = duration(windows.state_window)
    metric = "table_queue_exporter_state_write_errors_total"
    return Alert(
        name="TableQueueStateNotSaved",
        severity="warning",
        expr=f"max by ({JOB}) (increase({metric}[{window}])) > 0",
        hold=windows.state_for,
        summary="The exporter cannot save its state: counters stand still.",
        description=f"{_EXPORTER}: {AS_COUNT} writes of the state failed in the last {window}; "
        "alerts that need counters are blind.",
        value=AS_COUNT,
        of_queue=False,
    )


def table_alerts(settings: Settings) -> list[Alert]:
    """Alerts on the table and on what slows it down."""
    return [_vacuum_blocked(settings), _bloated(settings)]


def slow_alerts(settings: Settings) -> list[Alert]:
    """Alerts whose windows are hours."""
    return [_outgrown(settings)]


def watcher_alerts(settings: Settings) -> list[Alert]:
    """Alerts on the watcher itself."""
    return [
        _exporter_down(settings),
        _database_down(settings),
        _poll_failing(settings),
        _unwatched(settings),
        _counts_limited(settings),
        _reload_failed(settings),
        _state_not_saved(settings),
    ]
