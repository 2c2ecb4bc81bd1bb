"""Table queue: in depth. One queue, from its tasks down to the exporter that reads it."""

from __future__ import annotations

from collections.abc import Sequence

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog import builder as cog
from grafana_foundation_sdk.models import dashboard

from dashboards import board, depth_flow, depth_health, depth_leases
from dashboards.promql import DEPTH

_Panels = Sequence[cog.Builder[dashboard.Panel]]


def _rows() -> dict[str, _Panels]:
    return {
        "Tasks": depth_flow.where(),
        "Flow": depth_flow.flow(),
        "Waiting and processing time": depth_flow.times(),
        "Leases": depth_leases.leases(),
        "Attempts and poison tasks": depth_leases.attempts(),
        "The table": depth_health.table_health(),
        "The exporter": depth_health.exporter(),
    }


def depth() -> builders.Dashboard:
    """Return the dashboard."""
    found = board.board(
        board.DEPTH_UID,
        "Table queue: in depth",
        "Everything about one queue. Each panel's text says what is bad and what to do then.",
        DEPTH,
        several=False,
    )
    for title, panels in _rows().items():
        found.with_row(builders.Row(title))
        for panel in panels:
            found.with_panel(panel)
    return found
