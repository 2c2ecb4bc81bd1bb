"""Table queues: on call. Six panels, for whoever was just woken."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import stat, table, timeseries
from grafana_foundation_sdk.builders.common import ScaleDistributionConfig
from grafana_foundation_sdk.models import common, dashboard

from alerts.model import QUEUE
from alerts.thresholds import Levels
from dashboards import board
from dashboards.panels import (
    COUNT,
    GREEN,
    ORANGE,
    RED,
    SECONDS,
    SHARE,
    YELLOW,
    Column,
    Frame,
    Query,
    Text,
    named,
    number,
    over_time,
    rows,
    static_lines,
    thresholds,
)
from dashboards.promql import ONCALL, failing_share
from table_queue_exporter import metrics

_LEVELS = Levels()
_LABELS = tuple(QUEUE.split(", "))
# As the alert on vanished queues, but for an hour: then a queue that was removed is forgotten.
_SEEN = f"max by ({QUEUE}) (max_over_time({ONCALL.series(metrics.UP)}[1h]))"
_UP = ONCALL.largest(metrics.UP)
_GONE = f"{_SEEN} unless {_UP}"
_READY_AGE = ONCALL.largest(metrics.OLDEST_READY_AGE)
_RATIO = f"{_READY_AGE}\n  / {ONCALL.largest(metrics.OBJECTIVE_SECONDS)}"


def _firing() -> stat.Panel:
    def of(matcher: str, none: str) -> str:
        count = f"count by (alertname) (max by (alertname, {QUEUE}) ({ONCALL.firing(matcher)}))"
        # The number is one of queues; without any, a green tile says so.
        zero = f'label_replace(vector(0), "alertname", "{none}", "", "")'
        return f"{count}\n  or on () {zero}"

    frame = Frame(
        "Firing alerts",
        Text(
            "Alerts of this bundle that fire now, and for how many queues each; pages on red "
            "ground, tickets on orange.",
            "any red tile. Green is only worth something where Prometheus has loaded "
            "`table-queue.rules.yaml`: without the rules nothing can fire.",
            "open the alert's runbook; its message holds the link. Then click the queue's row "
            "below.",
        ),
        COUNT,
        "No alert fires",
        width=16,
        height=5,
    )
    pages = Query(of('severity="critical"', "No page"), "{{alertname}}", "now")
    tickets = Query(of('severity!="critical"', "No ticket"), "{{alertname}}", "now")
    panel = number(frame, pages, tickets)
    panel.text_mode(common.BigValueTextMode.VALUE_AND_NAME).thresholds(thresholds(GREEN, (1, RED)))
    orange = thresholds(GREEN, (1, ORANGE)).build()
    return panel.override_by_query("B", [dashboard.DynamicConfigValue("thresholds", orange)])


def _unread() -> stat.Panel:
    frame = Frame(
        "Queues not being read",
        Text(
            "Queues that the exporter cannot read now, and those that it showed within the last "
            "hour and no longer does.",
            "1 or more: the rest of the board says nothing about those queues, however calm it "
            "looks. `Nothing is watched`: no exporter is scraped at all.",
            "look at `read` in the table below, then at the polls' errors in the queue's own "
            "dashboard and at the exporter's log.",
        ),
        COUNT,
        "Nothing is watched",
        width=8,
        height=5,
    )
    unread = (
        f"count(\n  {_UP} == 0\n  or\n  {_GONE}\n)\n"
        f"or 0 * count({ONCALL.series(metrics.UP)})\nor vector(-1)"
    )
    panel = number(frame, Query(unread, "not read", "now"))
    panel.mappings([named({"-1": ("Nothing is watched", RED)})])
    return panel.thresholds(thresholds(RED, (0, GREEN), (1, RED)))


def _queues() -> table.Panel:
    frame = Frame(
        "Queues, worst first",
        Text(
            "Every queue that is watched, or was within the last hour. `late` is how long the "
            "longest-overdue task has been due, `÷ objective` the same in objectives.",
            "a red `read` (its other cells are empty because nobody knows); `÷ objective` from 1 "
            f"(yellow), from {_LEVELS.late_objectives:g} (red: this pages); `expired` that "
            "stays; `failed` that grows.",
            "click a row. Late with `ready` growing: too few workers, or a slow neighbour. Late "
            "with `expired`: workers died. `failed`: read the errors of the last failed tasks.",
        ),
        COUNT,
        "–",
        width=24,
        height=9,
    )
    panel = rows(
        frame,
        Column(
            "read",
            f"{_UP}\nor\n({_GONE}) * 0 - 1",
            texts={"1": ("yes", GREEN), "0": ("NO", RED), "-1": ("GONE", RED)},
        ),
        Column("late", _READY_AGE, SECONDS),
        Column(
            "÷ objective",
            _RATIO,
            colours=((1, YELLOW), (_LEVELS.late_objectives, RED)),
            decimals=1,
        ),
        Column("failed", ONCALL.total(metrics.RECENTLY_FAILED_TASKS)),
        Column("ready", ONCALL.total(metrics.TASKS, 'status="ready"')),
        Column("expired", ONCALL.total(metrics.TASKS, 'status="expired"')),
        Column("last read, ago", f"time() - {ONCALL.largest(metrics.LAST_SUCCESS)}", SECONDS),
        labels=_LABELS,
        hidden=("job",),
        worst=(("read", False), ("÷ objective", True), ("late", True)),
    )
    return panel.data_links([board.to_queue(board.ROW_TO_DEPTH)])


def _ratio() -> timeseries.Panel:
    frame = Frame(
        "Lateness in objectives, top ten",
        Text(
            "How long the longest-overdue task of a queue has been due, divided by the queue's "
            "objective. Logarithmic; 0.01 stands for less, an empty queue included.",
            "above 1 tasks are taken later than promised; above "
            f"{_LEVELS.late_objectives:g} for five "
            "minutes it pages. A "
            "line that climbs evenly: nobody takes anything. A gap: the queue could not be read.",
            "click a line for its queue. Queues without `objective` in the exporter's "
            "configuration are not here: set one.",
        ),
        "none",
        "No queue has an objective, or none can be read",
        width=10,
    )
    # A logarithm has no place for 0.
    worst = f"topk(10, clamp_min(\n  {_RATIO},\n  0.01\n))"
    panel = over_time(frame, Query(worst, "{{database}} {{queue}}"))
    panel.scale_distribution(ScaleDistributionConfig().type(common.ScaleDistribution.LOG).log(10))
    panel.min(0.01).axis_soft_max(10)
    static_lines(panel, GREEN, (1, YELLOW), (_LEVELS.late_objectives, RED))
    return panel.data_links([board.to_queue(board.SERIES_TO_DEPTH)])


def _failed() -> timeseries.Panel:
    frame = Frame(
        "Failed in the last hour",
        Text(
            "Tasks that were given up for good within `failed_window` (an hour unless configured "
            "otherwise), by queue.",
            "a step up: a broken neighbour or broken logic gave up many tasks at once. Steady "
            "growth: one kind of task always fails. 0 is normal.",
            "click the line; see by task type which work fails, read its last errors, mend, then "
            "enqueue those tasks again: nobody else will.",
        ),
        COUNT,
        "No queue shows its failed tasks",
        width=7,
    )
    query = Query(ONCALL.total(metrics.RECENTLY_FAILED_TASKS), "{{database}} {{queue}}")
    panel = over_time(frame, query)
    return panel.data_links([board.to_queue(board.SERIES_TO_DEPTH)])


def _failing() -> timeseries.Panel:
    frame = Frame(
        "Share of attempts failing",
        Text(
            "Of the attempts that ended, the share that failed or was given back, retried or not, "
            "by queue.",
            f"above {_LEVELS.failing_share:.0%} for a while it pages: the neighbour that "
            "the tasks call is down. It rises "
            "long before tasks are given up, for each is retried first.",
            "click the line and compare task types: all at once points to a shared service or a "
            "bad release, one alone to that work.",
        ),
        SHARE,
        "No attempt ended",
        width=7,
    )
    panel = over_time(frame, Query(failing_share(ONCALL), "{{database}} {{queue}}"))
    panel.min(0).max(1)
    static_lines(panel, GREEN, (_LEVELS.failing_share, RED))
    return panel.data_links([board.to_queue(board.SERIES_TO_DEPTH)])


def oncall() -> builders.Dashboard:
    """Return the dashboard."""
    found = board.board(
        board.ONCALL_UID,
        "Table queues: on call",
        "Is work late, does it fail, and are we looking at all? Click a queue for the rest.",
        ONCALL,
        several=True,
    )
    for panel in (_firing(), _unread(), _queues(), _ratio(), _failed(), _failing()):
        found.with_panel(panel)
    return found
