"""The committed dashboards, and what Grafana would make of their variables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parents[2] / "dashboards"
BOARDS: dict[str, dict[str, Any]] = {
    uid: json.loads((HERE / f"{uid}.json").read_text("utf-8"))
    for uid in ("table-queue-oncall", "table-queue-depth")
}

Values = Mapping[str, str | Sequence[str]]
"""A variable's one value, or its several; one that is missing stands at "All"."""

BUILT_IN = {"__rate_interval": "10s", "__range": "150s", "__interval": "5s"}


@dataclass(frozen=True)
class Panel:
    """One panel that asks something."""

    uid: str
    data: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.uid}/{self.title}"

    @property
    def title(self) -> str:
        return str(self.data["title"])

    @property
    def targets(self) -> list[dict[str, Any]]:
        return list(self.data["targets"])

    @property
    def no_value(self) -> str:
        return str(self.data["fieldConfig"]["defaults"].get("noValue", ""))


def panels(uid: str) -> list[Panel]:
    """The panels of a dashboard, without the rows."""
    return [Panel(uid, data) for data in BOARDS[uid]["panels"] if data["type"] != "row"]


PANELS = [panel for uid in BOARDS for panel in panels(uid)]


def panel(uid: str, title: str) -> Panel:
    """The panel of that title."""
    (found,) = [panel for panel in panels(uid) if panel.title == title]
    return found


def variables(uid: str) -> dict[str, dict[str, Any]]:
    """The variables of a dashboard by name."""
    return {variable["name"]: variable for variable in BOARDS[uid]["templating"]["list"]}


def fill(uid: str, text: str, values: Values) -> str:
    """A text with its variables replaced as Grafana's Prometheus data source does."""
    known = variables(uid)

    def value_of(match: re.Match[str]) -> str:
        name = match["braced"] or match["plain"]
        if name in BUILT_IN:
            return BUILT_IN[name]
        variable = known[name]
        if name not in values:
            assert variable["includeAll"], f"{name} of {uid} has no All"
            return str(variable["allValue"])
        value = values[name]
        if variable["multi"] or match["format"] == "regex":
            chosen = [value] if isinstance(value, str) else list(value)
            escaped = [re.escape(one).replace("\\", "\\\\") for one in chosen]
            return escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})"
        assert isinstance(value, str), f"{name} of {uid} takes one value"
        return value.replace("\\", "\\\\").replace('"', '\\"')

    return re.sub(r"\$\{(?P<braced>\w+)(?::(?P<format>\w+))?\}|\$(?P<plain>\w+)", value_of, text)


SOME: Values = {"database": "main", "queue": "payment"}


def expressions() -> Iterator[tuple[str, str]]:
    """Every expression, panels' and annotations', with variables filled in; each with its place."""
    for found in PANELS:
        for target in found.targets:
            yield f"{found}/{target['refId']}", fill(found.uid, target["expr"], SOME)
    for uid, board in BOARDS.items():
        for annotation in board["annotations"]["list"]:
            yield f"{uid}/{annotation['name']}", fill(uid, annotation["expr"], SOME)
