"""Small faults in the rules, each of which a promtool test must notice.

All mutants of an alert are evaluated side by side in one run of promtool, under names of their
own; records that a mutant leaves as they are, are shared.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from alerts import rules
from alerts.model import Alert, Record
from alerts.scenarios import ALL
from alerts.scenarios.dsl import Scenario
from alerts.scenarios.promtool import scenario_test
from alerts.thresholds import Levels, Settings, Windows

BASE = Settings()
RECORDED = re.compile(r"\b(?:queue|queue_type|table|database):table_queue_\w+:\w+")

# promtool evaluates at its own pace, so the pauses between evaluations are not under test.
UNTESTED = {"evaluation", "evaluation_slow"}
# Factors for constants that doubling or halving would take out of their range.
# A minute is one evaluation here: less is no different.
FACTORS = {"lease_quantile": (0.5, 1.009), "failures_for": (2.0, 3.0)}

# Changes of an expression: a name, what to find, and what to put there.
EDITS: tuple[tuple[str, str, str], ...] = (
    ("unless to and", r"\bunless\b", "and"),
    ("and to unless", r"\band\b", "unless"),
    ("or to and", r"\bor\b", "and"),
    (">= to <", r" >= ", " < "),
    ("> to <", r" > ", " < "),
    ("<= to >", r" <= ", " > "),
    ("< to >", r" < ", " > "),
    ("== to !=", r" == ", " != "),
    ("drop on", r"(?<!or )\bon \([^)]*\)( group_left \([^)]*\))? ", ""),
    ("drop ignoring", r"\bignoring \([^)]*\) ", ""),
    ("drop offset", r" offset \w+", ""),
    ("max to sum", r"\bmax by\b", "sum by"),
    ("sum to max", r"\bsum by\b", "max by"),
    ("min to max", r"\bmin by\b", "max by"),
    ("count to sum", r"\bcount by\b", "sum by"),
    ("sum without to max", r"\bsum without( \(status\) \([^)]*\|)", r"max without\1"),
    ("drop cluster", r"\bby \(cluster, ", "by ("),
    ("drop namespace", r"(\bby \(cluster), namespace", r"\1"),
    ("drop job", r"(\bby \(cluster, namespace), job\b(?=,)", r"\1"),
    ("drop last label", r", \w+\) \(", ") ("),
    ("done to failed", r'="done"', '="failed"'),
    ("failed to done", r'="failed"', '="done"'),
    ("forget expired", r'="processing\|expired"', '="processing"'),
    ("forget delayed", r'="ready\|delayed"', '="ready"'),
    ("count cancelled", r'!="cancelled"', '!=""'),
    ("cancelled fails", r'!~"done\|cancelled"', '!~"done"'),
)


@dataclass(frozen=True)
class Mutant:
    """One change, and the rules with that change made."""

    name: str
    records: dict[str, str]
    alerts: dict[str, Alert]


def _rules(settings: Settings) -> tuple[dict[str, str], dict[str, Alert]]:
    records: dict[str, str] = {}
    alerts: dict[str, Alert] = {}
    for group in rules.groups(settings):
        for rule in group.rules:
            if isinstance(rule, Record):
                records[rule.name] = rule.expr
            else:
                alerts[rule.name] = rule
    return records, alerts


RECORDS, ALERTS = _rules(BASE)


def constants() -> Iterator[Mutant]:
    """Double and halve every constant of the generator."""
    for name in (field.name for field in dataclasses.fields(Windows)):
        for factor in () if name in UNTESTED else FACTORS.get(name, (0.5, 2)):
            changed = {name: getattr(BASE.windows, name) * factor}
            windows = dataclasses.replace(BASE.windows, **changed)
            settings = dataclasses.replace(BASE, windows=windows)
            yield Mutant(f"{name} × {factor}", *_rules(settings))
    for name in (field.name for field in dataclasses.fields(Levels)):
        for factor in FACTORS.get(name, (0.5, 2)):
            levels = dataclasses.replace(BASE.levels, **{name: getattr(BASE.levels, name) * factor})
            yield Mutant(f"{name} × {factor}", *_rules(dataclasses.replace(BASE, levels=levels)))


def _edits(expr: str) -> Iterator[tuple[str, str]]:
    for title, pattern, replacement in EDITS:
        for number, found in enumerate(re.finditer(pattern, expr)):
            edited = expr[: found.start()] + found.expand(replacement) + expr[found.end() :]
            yield f"{title} #{number}", edited


def expressions() -> Iterator[Mutant]:
    """Edit every expression, one place at a time."""
    for name, expr in RECORDS.items():
        for edit, edited in _edits(expr):
            yield Mutant(f"{name}: {edit}", {**RECORDS, name: edited}, ALERTS)
    for name, alert in ALERTS.items():
        for edit, edited in _edits(alert.expr):
            changed = dataclasses.replace(alert, expr=edited)
            yield Mutant(f"{name}: {edit}", RECORDS, {**ALERTS, name: changed})


def all_mutants() -> list[Mutant]:
    """Return every mutant, always in the same order."""
    return [*constants(), *expressions()]


def _needed(expr: str, records: dict[str, str]) -> set[str]:
    """Return the records that an expression is built on, however far down."""
    needed: set[str] = set()
    waiting = set(RECORDED.findall(expr))
    while waiting:
        name = waiting.pop()
        if name in records and name not in needed:
            needed.add(name)
            waiting |= set(RECORDED.findall(records[name]))
    return needed


def _changed(mutant: Mutant, needed: set[str]) -> set[str]:
    """Return those of the needed records that the mutant changes, or that rest on such."""
    changed = {name for name in needed if RECORDS.get(name) != mutant.records[name]}
    while True:
        more = {
            name
            for name in needed - changed
            if changed & set(RECORDED.findall(mutant.records[name]))
        }
        if not more:
            return changed
        changed |= more


def _renamed(text: str, names: set[str], suffix: str) -> str:
    return RECORDED.sub(lambda m: m[0] + (suffix if m[0] in names else ""), text)


class Trial:
    """All mutants that touch one alert, side by side with the alert itself."""

    def __init__(self, alert: str, mutants: dict[int, Mutant]) -> None:
        self.alert = alert
        self.mutants: dict[int, Mutant] = {}
        base = ALERTS[alert]
        needed = _needed(base.expr, RECORDS)
        self._records = {name: RECORDS[name] for name in RECORDS if name in needed}
        self._own: dict[int, tuple[dict[str, str], Alert]] = {}
        for number, mutant in mutants.items():
            mutated = mutant.alerts[alert]
            needed = _needed(mutated.expr, mutant.records)
            changed = _changed(mutant, needed)
            if not changed and _same(mutated, base):
                continue  # the mutant does not touch this alert
            suffix = f"_m{number}"
            own = {
                name + suffix: _renamed(mutant.records[name], changed, suffix)
                for name in mutant.records
                if name in changed
            }
            expr = _renamed(mutated.expr, changed, suffix)
            self.mutants[number] = mutant
            self._own[number] = (
                own,
                dataclasses.replace(mutated, name=alert + suffix, expr=expr),
            )
        self.scenarios = [told for told in ALL if alert in told.alerts]

    @property
    def cost(self) -> float:
        """How long one rule is evaluated over all scenarios."""
        return sum(
            max(check.minute for check in told.checks if check.alert == self.alert)
            for told in self.scenarios
        )

    def leave_out(self, number: int) -> None:
        """Drop a mutant whose fate is known."""
        self._own.pop(number, None)

    def rule_file(self) -> str:
        """Return the rules of the run, without messages."""
        records = [Record(name, expr).rule() for name, expr in self._records.items()]
        alerts = [_bare(ALERTS[self.alert])]
        for own, alert in self._own.values():
            records += [Record(name, expr).rule() for name, expr in own.items()]
            alerts.append(_bare(alert))
        group = {"name": "table-queue.records.queues", "interval": "30s"}
        return rules.to_yaml({"groups": [{**group, "rules": [*records, *alerts]}]})

    def test_file(self, rule_file: str) -> str:
        """Return the checks of the alert, for itself and for each of its mutants."""
        names = [self.alert, *(alert.name for _, alert in self._own.values())]
        return rules.to_yaml(
            {
                "rule_files": [rule_file],
                "evaluation_interval": "1m",
                "tests": [_repeated(told, self.alert, names) for told in self.scenarios],
            }
        )


def _same(one: Alert, other: Alert) -> bool:
    return (one.expr, one.hold, one.keep) == (other.expr, other.hold, other.keep)


def _bare(alert: Alert) -> dict[str, object]:
    rule = alert.rule(BASE.links)
    del rule["annotations"]
    return rule


def _repeated(told: Scenario, alert: str, names: list[str]) -> dict[str, object]:
    """Ask of every name what the scenario asks of the alert, messages aside."""
    plain = tuple(
        dataclasses.replace(check, texts=None) for check in told.checks if check.alert == alert
    )
    test = scenario_test(dataclasses.replace(told, checks=plain), BASE)
    asked = json.dumps(test["promql_expr_test"])
    test["promql_expr_test"] = [
        check
        for name in names
        for check in json.loads(
            asked.replace(f'alertname=\\"{alert}\\"', f'alertname=\\"{name}\\"')
        )
    ]
    return test


# What cannot be told apart from the original, and why.
_PRESENCE = "only whether the series is there counts, not its value"
_SIGN = "values are never negative: their sum is above 0 exactly when the largest is"
EQUIVALENT: dict[str, str] = {
    "queue:table_queue_last_enqueued_timestamp_seconds:max: max to sum #1": _PRESENCE,
    "queue:table_queue_lease_reclaims:increase10m: max to sum #0": _SIGN,
    "table:table_queue_info:only_queue: count to sum #0": "the value of info is always 1",
    "TableQueueFailuresSpike: failed to done #4": "f / (f + d) and f / 2d pass a half together",
    "TableQueueExporterDown: max to sum #0": _PRESENCE,
    "TableQueueExporterDown: max to sum #1": _PRESENCE,
    "TableQueueExporterDown: count to sum #0": "differs in the message's figure only",
    "TableQueueDatabaseDown: max to sum #0": _SIGN,
    "TableQueueUnwatched: max to sum #0": _PRESENCE,
    "TableQueueUnwatched: max to sum #1": _PRESENCE,
    "TableQueueStateNotSaved: max to sum #0": _SIGN,
    "TableQueueLeaseTooShort: max to sum #0": "a quantile stays when all its buckets double",
}
