"""The list of alerts in README.md, between two markers."""

from __future__ import annotations

import re
from collections.abc import Iterable

from alerts.model import Alert
from alerts.thresholds import duration

BEGIN = "<!-- alerts: begin, written by python -m alerts.generate -->"
END = "<!-- alerts: end -->"


def with_alerts(text: str, alerts: Iterable[Alert]) -> str:
    """Return the page with the list renewed."""
    lines = ["| alert | severity | for | says |", "| --- | --- | --- | --- |"]
    lines += [
        f"| [{alert.name}](runbooks/{alert.name}.md) | {alert.severity} "
        f"| {duration(alert.hold)} | {alert.summary} |"
        for alert in alerts
    ]
    block = "\n".join([BEGIN, *lines, END])
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    if not pattern.search(text):
        raise ValueError("README.md has lost the markers of its list of alerts")
    return pattern.sub(lambda _: block, text)
