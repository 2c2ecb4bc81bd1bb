"""Panels: what one query, one text and one picture are, and how they become Grafana's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, Self

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as dashboard_builders
from grafana_foundation_sdk.builders import heatmap, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog import builder as cog
from grafana_foundation_sdk.cog import variants
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models import heatmap as heatmap_models
from grafana_foundation_sdk.models import prometheus as prometheus_models

DATASOURCE = dashboard.DataSourceRef("prometheus", "${datasource}")
RATE_INTERVAL = "1m"
"""Least step of panels with rates: `$__rate_interval` is then 4 minutes or more, which spans the
polls of a watcher that slowed itself down to the two minutes that it may."""

GREEN, YELLOW, ORANGE, RED, BLUE = "green", "yellow", "orange", "red", "blue"

SECONDS, SHARE, COUNT, PER_SECOND = "s", "percentunit", "short", "cps"

Override = list[dashboard.DynamicConfigValue]


@dataclass(frozen=True)
class Text:
    """What a panel is for: what it shows, what a bad value looks like, what to do then."""

    shows: str
    bad: str
    do: str

    def __str__(self) -> str:
        return f"{self.shows}\n\n**Bad:** {self.bad}\n\n**Do:** {self.do}"


@dataclass(frozen=True)
class Query:
    """One query. `legend` names its series; `kind` is how Grafana asks for it."""

    expr: str
    legend: str = ""
    kind: Literal["range", "now", "table", "heatmap"] = "range"

    def build(self, ref_id: str, rates: bool) -> prometheus.Dataquery:
        """Return the target of a panel."""
        target = prometheus.Dataquery().expr(self.expr).ref_id(ref_id).datasource(DATASOURCE)
        target.legend_format(self.legend or "__auto")
        target.editor_mode(prometheus_models.QueryEditorMode.CODE)
        target = target.range() if self.kind in ("range", "heatmap") else target.instant()
        formats = prometheus_models.PromQueryFormat
        found = {"table": formats.TABLE, "heatmap": formats.HEATMAP}
        target.format(found.get(self.kind, formats.TIME_SERIES))
        return target.interval(RATE_INTERVAL) if rates else target


class _Panel(Protocol):
    """What the builders of all kinds of panels share."""

    def title(self, title: str) -> Self: ...
    def description(self, description: str) -> Self: ...
    def datasource(self, datasource: dashboard.DataSourceRef) -> Self: ...
    def height(self, h: int) -> Self: ...
    def span(self, w: int) -> Self: ...
    def unit(self, unit: str) -> Self: ...
    def no_value(self, no_value: str) -> Self: ...
    def interval(self, interval: str) -> Self: ...
    def with_target(self, target: cog.Builder[variants.Dataquery]) -> Self: ...


@dataclass(frozen=True)
class Frame:
    """What every panel has: title, text, unit, size and what stands there when nothing does."""

    title: str
    text: Text
    unit: str
    no_value: str
    width: int = 12
    height: int = 8

    def fill(self, panel: _Panel, queries: tuple[Query, ...]) -> None:
        """Give a panel its frame and queries; rates bring their least interval."""
        rates = any("$__rate_interval" in query.expr for query in queries)
        panel.title(self.title).description(str(self.text)).datasource(DATASOURCE)
        panel.span(self.width).height(self.height).unit(self.unit).no_value(self.no_value)
        if rates:
            panel.interval(RATE_INTERVAL)
        for ref_id, query in zip("ABCDEFGHIJ", queries, strict=False):
            panel.with_target(query.build(ref_id, rates))


def thresholds(base: str, *steps: tuple[float, str]) -> dashboard_builders.ThresholdsConfig:
    """Return colours by value: `base` below the first step."""
    found = [dashboard.Threshold(None, base)]
    found += [dashboard.Threshold(value, colour) for value, colour in steps]
    return (
        dashboard_builders.ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps(found)
    )


def named(values: dict[str, tuple[str, str]]) -> dashboard.ValueMap:
    """Return texts and colours that stand in for single values."""
    return dashboard.ValueMap(
        {
            value: dashboard.ValueMappingResult(text=text, color=colour, index=index)
            for index, (value, (text, colour)) in enumerate(values.items())
        }
    )


def over_time(frame: Frame, *queries: Query, stacked: bool = False) -> timeseries.Panel:
    """Return lines over time, with the last and the largest value in the legend."""
    panel = timeseries.Panel()
    frame.fill(panel, queries)
    panel.legend(
        common_builders.VizLegendOptions()
        .display_mode(common.LegendDisplayMode.TABLE)
        .placement(common.LegendPlacement.BOTTOM)
        .show_legend(True)
        .calcs(["lastNotNull", "max"])
    )
    panel.tooltip(
        common_builders.VizTooltipOptions()
        .mode(common.TooltipDisplayMode.MULTI)
        .sort(common.SortOrder.DESCENDING)
    )
    panel.line_width(1).fill_opacity(25 if stacked else 5).axis_soft_min(0)
    # A gap is a poll that failed: it stays a gap.
    panel.show_points(common.VisibilityMode.NEVER).span_nulls(False)
    if stacked:
        panel.stacking(common_builders.StackingConfig().mode(common.StackingMode.NORMAL).group("A"))
    return panel


def limit_line(panel: timeseries.Panel, name: str) -> timeseries.Panel:
    """Draw one of the queries as a dashed red line: a limit from the configuration."""
    style = {"fill": "dash", "dash": [10, 10]}
    return panel.override_by_name(
        name,
        [
            dashboard.DynamicConfigValue("color", {"mode": "fixed", "fixedColor": RED}),
            dashboard.DynamicConfigValue("custom.lineStyle", style),
            dashboard.DynamicConfigValue("custom.fillOpacity", 0),
            dashboard.DynamicConfigValue("custom.stacking", {"mode": "none", "group": "limit"}),
        ],
    )


def coloured(panel: timeseries.Panel, **colours: str) -> timeseries.Panel:
    """Give series of these names the same colour on every panel."""
    for name, colour in colours.items():
        fixed = {"mode": "fixed", "fixedColor": colour}
        panel.override_by_name(name, [dashboard.DynamicConfigValue("color", fixed)])
    return panel


def static_lines(panel: timeseries.Panel, base: str, *steps: tuple[float, str]) -> timeseries.Panel:
    """Draw limits that are the same for every queue."""
    style = common_builders.GraphThresholdsStyleConfig().mode(
        common.GraphThresholdsStyleMode.DASHED
    )
    return panel.thresholds(thresholds(base, *steps)).thresholds_style(style)


def spread(frame: Frame, expr: str) -> heatmap.Panel:
    """Return a histogram over time, drawn from its own buckets."""
    panel = heatmap.Panel()
    frame.fill(panel, (Query(expr, "{{le}}", "heatmap"),))
    panel.calculate(False)
    panel.y_axis(heatmap.YAxisConfig().unit(frame.unit).axis_placement(common.AxisPlacement.LEFT))
    panel.cell_values(heatmap.CellValues().unit(COUNT).decimals(0))
    panel.color(
        heatmap.HeatmapColorOptions()
        .mode(heatmap_models.HeatmapColorMode.SCHEME)
        .scheme("Oranges")
        .scale(heatmap_models.HeatmapColorScale.EXPONENTIAL)
        .exponent(0.5)
        .steps(64)
    )
    # Cells below a thousandth of a task are rounding of increase(): left white.
    panel.filter_values(heatmap.FilterValueRange().le(1e-3))
    return panel.mode(common.TooltipDisplayMode.SINGLE).show_color_scale(True).show_legend()


def number(frame: Frame, *queries: Query) -> stat.Panel:
    """Return large numbers on a coloured ground."""
    panel = stat.Panel()
    frame.fill(panel, queries)
    panel.color_mode(common.BigValueColorMode.BACKGROUND)
    panel.graph_mode(common.BigValueGraphMode.NONE).justify_mode(common.BigValueJustifyMode.AUTO)
    return panel.reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]))


@dataclass(frozen=True)
class Column:
    """One query of a table, and how its column looks."""

    title: str
    expr: str
    unit: str = COUNT
    colours: tuple[tuple[float, str], ...] = ()
    texts: dict[str, tuple[str, str]] | None = None
    decimals: int | None = None

    def override(self) -> Override:
        """Return the column's settings."""
        value = dashboard.DynamicConfigValue
        found = [value("displayName", self.title), value("unit", self.unit)]
        if self.decimals is not None:
            found.append(value("decimals", self.decimals))
        if self.texts is not None:
            found.append(value("mappings", [named(self.texts)]))
        if self.colours:
            found.append(value("thresholds", thresholds(GREEN, *self.colours).build()))
        if self.colours or self.texts is not None:
            cell = {"type": "color-background", "mode": "basic"}
            found.append(value("custom.cellOptions", cell))
        return found


def rows(
    frame: Frame,
    *columns: Column,
    labels: tuple[str, ...],
    hidden: tuple[str, ...] = (),
    worst: tuple[tuple[str, bool], ...],
) -> table.Panel:
    """Return a table: a row for each set of labels, a column for each query, sorted by `worst`.

    The queries share their labels, so rows merge; a row stays where some queries find nothing.
    """
    panel = table.Panel()
    frame.fill(panel, tuple(Query(column.expr, kind="table") for column in columns))
    refs = [f"Value #{ref_id}" for ref_id, _ in zip("ABCDEFGHIJ", columns, strict=False)]
    order = {name: index for index, name in enumerate([*labels, *refs])}
    panel.with_transformation(dashboard.DataTransformerConfig("merge", options={}))
    organize = {"excludeByName": {"Time": True}, "indexByName": order, "renameByName": {}}
    panel.with_transformation(dashboard.DataTransformerConfig("organize", options=organize))
    value = dashboard.DynamicConfigValue
    for label in labels:
        # Hidden columns are still there for the links of a row.
        settings = [value("displayName", label.replace("_", " ")), value("unit", "string")]
        settings += [value("custom.hidden", True)] if label in hidden else []
        panel.override_by_name(label, settings)
    for ref, column in zip(refs, columns, strict=True):
        panel.override_by_name(ref, column.override())
    panel.sort_by(
        [
            common_builders.TableSortByFieldState().display_name(name).desc(descending)
            for name, descending in worst
        ]
    )
    return panel.cell_height(common.TableCellHeight.SM).show_header(True)
