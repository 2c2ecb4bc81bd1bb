"""In depth: the table, who holds vacuum back, and the exporter itself."""

from __future__ import annotations

from grafana_foundation_sdk.builders import timeseries

from alerts.model import DATABASE, TABLE
from alerts.thresholds import Levels, Windows
from dashboards.panels import (
    COUNT,
    PER_SECOND,
    RED,
    SECONDS,
    Frame,
    Query,
    Text,
    coloured,
    limit_line,
    over_time,
    static_lines,
)
from dashboards.promql import DEPTH
from table_queue_exporter import metrics
from table_queue_exporter.metrics import Metric

_UNREAD = "The table's statistics cannot be read (a standby has none)"
_UNSEEN = "Nobody holds vacuum back, or the exporter's role may not see it (pg_read_all_stats)"


def _of_table(metric: Metric) -> str:
    return DEPTH.of_table(DEPTH.largest(metric, by=TABLE), TABLE)


def _rows() -> timeseries.Panel:
    frame = Frame(
        "Rows of the table",
        Text(
            "Live and dead row versions, as the server estimates them.",
            "dead rows beyond half of the live ones that do not fall again: every claim steps "
            "over them. A saw-tooth is autovacuum at work.",
            "see who holds the horizon; otherwise lower the table's autovacuum scale factor.",
        ),
        COUNT,
        _UNREAD,
    )
    return over_time(
        frame,
        Query(_of_table(metrics.DEAD_ROWS), "dead {{table}}"),
        Query(_of_table(metrics.LIVE_ROWS), "live {{table}}"),
    )


def _size() -> timeseries.Panel:
    frame = Frame(
        "Size of the table",
        Text(
            "With indexes and TOAST.",
            "growth that is steady, or that stays after a backlog is gone: finished rows are kept "
            "for ever, or the table is bloated.",
            "delete or partition finished rows away; rebuild bloated indexes concurrently.",
        ),
        "bytes",
        "The table cannot be read",
    )
    return over_time(frame, Query(_of_table(metrics.TABLE_BYTES), "{{table}}"))


def _written() -> timeseries.Panel:
    frame = Frame(
        "Rows inserted and deleted",
        Text(
            "Row versions per second, rolled back ones included.",
            "inserts without deletes: the table grows without end. Some hundreds a second for "
            "hours: the queue does a broker's work.",
            "switch archiving on; past some tens of thousands of tasks a minute, use a broker.",
        ),
        PER_SECOND,
        _UNREAD,
    )

    def rate(metric: Metric) -> str:
        return DEPTH.of_table(DEPTH.rate(metric, by=TABLE), TABLE)

    return over_time(
        frame,
        Query(rate(metrics.ROWS_INSERTED), "inserted {{table}}"),
        Query(rate(metrics.ROWS_DELETED), "deleted {{table}}"),
    )


def _vacuumed() -> timeseries.Panel:
    frame = Frame(
        "Since the last autovacuum",
        Text(
            "How long ago autovacuum last ended on this table.",
            "more than an hour on a busy queue while dead rows grow.",
            "look for a held horizon beside, for a cancelled autovacuum in the server's log, and "
            "at autovacuum_max_workers.",
        ),
        SECONDS,
        "Autovacuum never came to this table",
    )
    ago = DEPTH.of_table(f"time() - {DEPTH.largest(metrics.LAST_AUTOVACUUM, by=TABLE)}", TABLE)
    return over_time(frame, Query(ago, "{{table}}"))


def _horizon(title: str, metric: Metric, unit: str, shows: str) -> timeseries.Panel:
    frame = Frame(
        title,
        Text(
            f"{shows} By holder: session, prepared (transaction), slot, standby.",
            "half an hour, or a million transactions, and growing: no dead row that is younger "
            "can be removed.",
            "session: find and end the oldest transaction in pg_stat_activity. prepared: commit "
            "or roll it back. slot: drop it or bring its consumer back. standby: its long query.",
        ),
        unit,
        _UNSEEN,
    )
    by = f"{DATABASE}, holder"
    return over_time(
        frame, Query(f"max by (holder) ({DEPTH.largest(metric, by=by)})", "{{holder}}")
    )


def _held_seconds() -> timeseries.Panel:
    panel = _horizon(
        "Who holds the horizon, by time",
        metrics.XMIN_HORIZON_SECONDS,
        SECONDS,
        "Age of the oldest transaction that vacuum must spare.",
    )
    return static_lines(panel, "green", (Windows().horizon_after, RED))


def _held_transactions() -> timeseries.Panel:
    panel = _horizon(
        "Who holds the horizon, by transactions",
        metrics.XMIN_HORIZON_TRANSACTIONS,
        COUNT,
        "Transactions since the oldest one that vacuum must spare.",
    )
    return static_lines(panel, "green", (Levels().horizon_transactions, RED))


def _reads() -> timeseries.Panel:
    frame = Frame(
        "Is it being read?",
        Text(
            "1: the queue's last poll was good, the database answers, the event counters are "
            "exact.",
            "`queue` 0 with `database` 1: a privilege, a column or a time-out; gauges are absent "
            "meanwhile. `database` 0: it does not answer. `exact` 0: docs/exactness.md says why.",
            "see the errors by reason, then the exporter's log: it names the statement that mends "
            "it.",
        ),
        COUNT,
        "No exporter knows this queue",
    )
    panel = over_time(
        frame,
        Query(DEPTH.largest(metrics.UP, by="queue"), "queue"),
        Query(DEPTH.largest(metrics.DATABASE_UP, by="database"), "database"),
        Query(DEPTH.largest(metrics.EVENTS_EXACT, by="queue"), "exact"),
    )
    return panel.max(1)


def _errors() -> timeseries.Panel:
    frame = Frame(
        "Failed polls, by reason",
        Text(
            "Polls that failed within the rate window; 0 is normal.",
            "`timeout`: the table is slow to read, often for dead rows or a missing index. "
            "`permission`, `undefined_object`: somebody changed the table. `lock_timeout`: a "
            "migration. `connection`: the database.",
            "`table-queue-exporter sql` prints the statements and the GRANTs that they need; the "
            "exporter's log says which one failed.",
        ),
        COUNT,
        "No exporter knows this queue",
    )
    return over_time(frame, Query(DEPTH.increase(metrics.POLL_ERRORS, by="reason"), "{{reason}}"))


def _duration() -> timeseries.Panel:
    frame = Frame(
        "Duration of a poll",
        Text(
            "Time that the last poll took; the line is one twentieth of the configured interval, "
            "the usual budget.",
            "above the line the exporter slows itself down, to two minutes at most. Growth with "
            "the table: an index is missing.",
            "compare with dead rows; docs/indexes.md lists the indexes that make polls cheap.",
        ),
        SECONDS,
        "No poll has ended yet",
    )
    budget = f"0.05 * {DEPTH.largest(metrics.POLL_INTERVAL_CONFIGURED, by='queue')}"
    panel = over_time(
        frame,
        Query(DEPTH.largest(metrics.POLL_DURATION, by="queue"), "poll"),
        Query(budget, "budget"),
    )
    return limit_line(panel, "budget")


def _pace() -> timeseries.Panel:
    frame = Frame(
        "Pace of polls",
        Text(
            "Present and configured time between polls, the time since the last good one, and "
            "polls per second.",
            "`present` above `configured`: polls cost more than their budget. `last good` that "
            "climbs: nothing is read.",
            "make polls cheaper before you raise the interval.",
        ),
        SECONDS,
        "No exporter knows this queue",
    )
    panel = over_time(
        frame,
        Query(DEPTH.largest(metrics.POLL_INTERVAL, by="queue"), "present"),
        Query(DEPTH.largest(metrics.POLL_INTERVAL_CONFIGURED, by="queue"), "configured"),
        Query(f"time() - {DEPTH.largest(metrics.LAST_SUCCESS, by='queue')}", "last good, ago"),
        Query(f"1 / ({DEPTH.rate(metrics.POLLS, by='queue')} > 0)", "measured"),
    )
    return limit_line(panel, "configured")


def _trouble() -> timeseries.Panel:
    frame = Frame(
        "The exporter's troubles",
        Text(
            "All are 0 when all is well: counts that are only a lower bound, task types summed "
            "under `_other`, values put right, states not saved, series dropped, failed reloads.",
            "anything that stays above 0. `lower bounds`: more tasks wait than are counted. "
            "`not saved`: the counters stand still. `clamped`: clocks differ.",
            "raise `count_limit`, `max_task_types` or `max_series`; mend the state directory's "
            "disk; mend the configuration file.",
        ),
        COUNT,
        "No exporter is scraped",
    )

    def grown(metric: Metric) -> str:
        return DEPTH.increase(metric, by="")

    # Of every replica: one that reads an old configuration is one too many.
    failed_reloads = f"sum(1 - {DEPTH.series(metrics.RELOAD_SUCCESSFUL)})"
    panel = over_time(
        frame,
        Query(DEPTH.total(metrics.COUNT_LIMITED, by="queue"), "lower bounds"),
        Query(DEPTH.largest(metrics.TASK_TYPES_LIMITED, by="queue"), "types under _other"),
        Query(grown(metrics.CLAMPED_VALUES), "clamped"),
        Query(grown(metrics.STATE_WRITE_ERRORS), "not saved"),
        Query(grown(metrics.SERIES_DROPPED), "series dropped"),
        Query(failed_reloads, "reload failed"),
    )
    return coloured(panel, **{"not saved": RED, "series dropped": RED})


def _versions() -> timeseries.Panel:
    frame = Frame(
        "Exporters by version",
        Text(
            "How many exporters are scraped, by their version.",
            "fewer than you run: one is down or not scraped. Two versions for long: a rollout "
            "that hangs.",
            "look at the targets in Prometheus and at the rollout.",
        ),
        COUNT,
        "No exporter is scraped",
    )
    count = f"count by (version) ({DEPTH.series(metrics.BUILD_INFO)})"
    return over_time(frame, Query(count, "{{version}}"))


def table_health() -> list[timeseries.Panel]:
    """Return the panels on the table and on vacuum."""
    return [_rows(), _size(), _vacuumed(), _written(), _held_seconds(), _held_transactions()]


def exporter() -> list[timeseries.Panel]:
    """Return the panels on the exporter's own polls."""
    return [_reads(), _errors(), _duration(), _pace(), _trouble(), _versions()]
