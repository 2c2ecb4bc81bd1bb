"""What both dashboards share: variables, links, alert annotations, settings."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.models import dashboard

from alerts.model import JOB
from dashboards.panels import DATASOURCE, RED
from dashboards.promql import OF_JOB, Scope
from table_queue_exporter import metrics
from table_queue_exporter.metrics import Metric

ONCALL_UID = "table-queue-oncall"
DEPTH_UID = "table-queue-depth"
TAG = "table-queue"
_ALL = dashboard.VariableOption(selected=True, text=["All"], value=["$__all"])


class _AlertAnnotation(dashboard.AnnotationQuery):
    """Prometheus' own settings of an annotation, which the SDK's model does not know."""

    def to_json(self) -> dict[str, object]:
        return {
            **super().to_json(),
            "titleFormat": "{{alertname}}",
            "textFormat": "{{database}} {{queue}} {{task_type}}",
            "tagKeys": "severity",
            "step": "1m",
        }


class _Alerts(builders.AnnotationQuery):
    """Builds an annotation from a Prometheus query."""

    def __init__(self) -> None:
        self._internal = _AlertAnnotation()


def _values(metric: Metric, label: str, matchers: tuple[str, ...]) -> str:
    selector = f"{{{','.join(matchers)}}}" if matchers else ""
    return f"label_values({metric.name}{selector}, {label})"


def _choice(name: str, query: str, description: str, *, several: bool) -> builders.QueryVariable:
    variable = (
        builders.QueryVariable(name)
        .label(name.replace("_", " ").capitalize())
        .description(description)
        .query(query)
        .datasource(DATASOURCE)
        .refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(dashboard.VariableSort.ALPHABETICAL_CASE_INSENSITIVE_ASC)
        .multi(several)
        .include_all(several)
    )
    # "All" also matches series without the label: many installations have no cluster or namespace.
    return variable.all_value(".*").current(_ALL) if several else variable


def variables(scope: Scope, *, several: bool) -> list[builders.QueryVariable]:
    """Return the variables; `several`: whether more than one queue may be chosen."""
    found = []
    for index, label in enumerate(JOB.split(", ")):
        query = _values(metrics.UP, label, OF_JOB[:index])
        found.append(_choice(label, query, f"The {label} of the exporters.", several=True))
    database = _values(metrics.UP, "database", OF_JOB)
    queue = _values(metrics.UP, "queue", (*OF_JOB, scope.database))
    task_type = _values(metrics.TASKS, "task_type", (*OF_JOB, scope.database, scope.queue))
    return [
        *found,
        _choice("database", database, "As the exporter's configuration calls it.", several=several),
        _choice("queue", queue, "A table, or one of its queues: table/queue.", several=several),
        _choice("task_type", task_type, "What kind of work a task is.", several=True),
    ]


_CARRIED = "&".join(f"${{{name}:queryparam}}" for name in ("datasource", *JOB.split(", ")))
TO_ONCALL = f"/d/{ONCALL_UID}?{_CARRIED}"
"""Without the queue: one looks at the board to see the others too."""
TO_DEPTH = f"/d/{DEPTH_UID}?{_CARRIED}"
"""Without the queues: the board has several, the other dashboard shows one."""


def _row_link(fields: str) -> str:
    """Return a link to a queue; a label that the row lacks becomes empty, and so matches."""
    labels = "&".join(
        f"var-{label}=${{{fields}.{label}:percentencode}}"
        for label in (*JOB.split(", "), "database", "queue")
    )
    rest = "${datasource:queryparam}&${task_type:queryparam}&${__url_time_range}"
    return f"/d/{DEPTH_UID}?{labels}&{rest}"


ROW_TO_DEPTH = _row_link("__data.fields")
SERIES_TO_DEPTH = _row_link("__field.labels")


def to_queue(url: str) -> builders.DashboardLink:
    """Return the link of a row or a line to its queue."""
    return builders.DashboardLink("Show this queue in depth").url(url)


def _link(title: str, url: str, tooltip: str) -> builders.DashboardLink:
    link = builders.DashboardLink(title).type(dashboard.DashboardLinkType.LINK).url(url)
    return link.icon("dashboard").tooltip(tooltip).keep_time(True)


def board(
    uid: str, title: str, description: str, scope: Scope, *, several: bool
) -> builders.Dashboard:
    """Return a dashboard without panels."""
    found = (
        builders.Dashboard(title)
        .uid(uid)
        .description(description)
        .tags([TAG])
        .readonly()
        .timezone("browser")
        .time("now-3h" if several else "now-6h", "now")
        .refresh("30s" if several else "1m")
        .tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
        .with_variable(
            builders.DatasourceVariable("datasource")
            .label("Data source")
            .description("The Prometheus that scrapes the exporters.")
            .type("prometheus")
        )
    )
    for variable in variables(scope, several=several):
        found.with_variable(variable)
    found.annotation(
        _Alerts()
        .name("Alerts")
        .datasource(DATASOURCE)
        .enable(True)
        .icon_color(RED)
        .expr(f"max by (alertname, severity, database, queue, task_type)\n  ({scope.firing()})")
    )
    if several:
        found.link(_link("In depth", TO_DEPTH, "One queue: flow, times, leases, table, exporter"))
    else:
        found.link(_link("On call", TO_ONCALL, "All queues at a glance"))
    return found
