"""What a recording rule and an alert rule are, and how they are written down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from alerts.thresholds import Links, duration

Severity = Literal["critical", "warning", "info"]

JOB = "cluster, namespace, job"
DATABASE = f"{JOB}, database"
QUEUE = f"{DATABASE}, queue"
TYPE = f"{QUEUE}, task_type"
TABLE = f"{DATABASE}, table"

# How a value reads in a message.
AS_DURATION = "{{ $value | humanizeDuration }}"
AS_SHARE = "{{ $value | humanizePercentage }}"
AS_COUNT = '{{ $value | printf "%.0f" }}'
AS_NUMBER = "{{ $value | humanize }}"


def looked_up(record: str, humanised: str = "humanizeDuration") -> str:
    """Return a template that shows a record's value for the alert's queue; empty where unset."""
    labels = QUEUE.split(", ")
    matchers = ",".join(f"{label}=%q" for label in labels)
    values = " ".join(f"$labels.{label}" for label in labels)
    query = f'printf "{record}{{{matchers}}}" {values} | query'
    return f"{{{{ with {query} }}}}{{{{ . | first | value | {humanised} }}}}{{{{ end }}}}"


@dataclass(frozen=True)
class Record:
    """A recording rule."""

    name: str
    expr: str

    def rule(self) -> dict[str, object]:
        """Return the rule as the rule file holds it."""
        return {"record": self.name, "expr": self.expr}


@dataclass(frozen=True)
class Alert:
    """An alert rule; links and the objective are the same for all and are added here."""

    name: str
    severity: Severity
    expr: str
    hold: float
    summary: str
    description: str
    value: str | None = None
    keep: float = 0
    of_queue: bool = True

    def rule(self, links: Links) -> dict[str, object]:
        """Return the rule as the rule file holds it."""
        rule: dict[str, object] = {"alert": self.name, "expr": self.expr}
        rule["for"] = duration(self.hold)
        if self.keep:
            rule["keep_firing_for"] = duration(self.keep)
        rule["labels"] = {"severity": self.severity}
        rule["annotations"] = self._annotations(links)
        return rule

    def _annotations(self, links: Links) -> dict[str, str]:
        annotations = {"summary": self.summary, "description": self.description}
        if self.value:
            annotations["value"] = self.value
        if self.of_queue:
            # Comes out empty where the queue has no objective; the message then has no line.
            annotations["objective"] = looked_up("queue:table_queue_objective_seconds:max")
        annotations["runbook_url"] = f"{links.runbooks}/{self.name}"
        annotations["dashboard_url"] = _dashboard(links)
        return annotations


def _dashboard(links: Links) -> str:
    """Return the link with every label that the alert has; a queue's name may hold a slash."""
    first = (
        "var-database={{ $labels.database | urlquery }}&var-queue={{ $labels.queue | urlquery }}"
    )
    more = "".join(
        f"{{{{ with $labels.{label} }}}}&var-{label}={{{{ . | urlquery }}}}{{{{ end }}}}"
        for label in JOB.split(", ")
    )
    return f"{links.dashboards}/d/table-queue-depth?{first}{more}"
