"""Every query of every panel and variable, asked of a real Prometheus that saw every fault."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from table_queue_exporter.demo.faults import FAULTS
from table_queue_exporter.demo.stage import TASK_TYPES
from tests.dashboards.boards import BOARDS, PANELS, SOME, Panel, Values, fill, panel, variables
from tests.dashboards.stage import LABELS, TIMINGS, Played, Series, ask, stage
from tests.support.prometheus import Prometheus

ONCALL, DEPTH = BOARDS
FILLED: Values = {**SOME, "job": "table-queue", "task_type": list(TASK_TYPES)}
LABELLED: Values = {**FILLED, **LABELS}
MAY_BE_EMPTY: dict[str, str] = {}
"""Queries that the demo gives nothing to, and why."""
QUIET = {
    # No attempt ended, so there is no share of them; the panels say so.
    "Share of attempts failing, by task type",
    "Waiting time, by task type",
    "Processing time, by task type",
    # Nothing died, so autovacuum never came.
    "Since the last autovacuum",
}
"""Panels without a value for a queue in which nothing ever happened."""


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    with stage(tmp_path_factory.mktemp("dashboards")) as found:
        yield found


def answers(played: Played, server: Prometheus, found: Panel, values: Values) -> list[list[Series]]:
    """What each query of a panel finds: over all that was played, or at its end."""
    return [
        ask(
            server,
            fill(found.uid, target["expr"], values),
            played.ended if target["instant"] else played.began,
            played.ended,
        )
        for target in found.targets
    ]


def all_or(found: Panel, values: Values) -> Values:
    """No choice wherever the dashboard has an All."""
    known = variables(found.uid)
    return {name: value for name, value in values.items() if not known[name]["includeAll"]}


@pytest.mark.parametrize("found", PANELS, ids=str)
@pytest.mark.parametrize("chosen", ["all", "filled", "labelled"])
def test_every_query_finds_what_the_demo_does(played: Played, chosen: str, found: Panel) -> None:
    server = played.labelled if chosen == "labelled" else played.replicas
    values = {"all": all_or(found, SOME), "filled": FILLED, "labelled": LABELLED}[chosen]
    for target, series in zip(found.targets, answers(played, server, found, values), strict=True):
        place = f"{found}/{target['refId']}"
        assert bool(series) != (place in MAY_BE_EMPTY), f"{place}: {target['expr']}"
        wanted = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        for labels, _ in series:
            assert wanted <= set(labels), f"{place}: a legend without its label"
            assert "instance" not in labels


@pytest.mark.parametrize("uid", BOARDS)
@pytest.mark.parametrize("labels", [{}, LABELS], ids=["bare", "labelled"])
def test_variables_offer_what_is_there(played: Played, uid: str, labels: dict[str, str]) -> None:
    server = played.labelled if labels else played.replicas
    expected = {
        "cluster": [labels["cluster"]] if labels else [],
        "namespace": [labels["namespace"]] if labels else [],
        "job": ["table-queue"],
        "database": ["main"],
        "queue": ["missing", "payment", "quiet"],
    }
    for values in (SOME, {**FILLED, **labels}):
        offered = {}
        for name, variable in variables(uid).items():
            match = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"])
            if match:
                selector = fill(uid, match[1], values)
                asked = {"match[]": selector, "start": str(played.began), "end": str(played.ended)}
                offered[name] = server.api(f"label/{match[2]}/values", **asked)
        types = offered.pop("task_type")
        assert isinstance(types, list)
        assert set(types) > set(TASK_TYPES)
        assert offered == expected


@pytest.mark.parametrize("uid", BOARDS)
def test_alerts_become_annotations(played: Played, uid: str) -> None:
    (annotation,) = BOARDS[uid]["annotations"]["list"]
    for values in (SOME, FILLED):
        expr = fill(uid, annotation["expr"], values)
        found = {labels["alertname"] for labels, _ in _over_all(played, expr)}
        assert "TableQueueTasksLate" in found
        assert all(name.startswith("TableQueue") for name in found)


def _over_all(played: Played, expr: str) -> list[Series]:
    return ask(played.replicas, expr, played.began, played.ended)


@pytest.mark.parametrize("found", [p for p in PANELS if p.uid == DEPTH], ids=str)
def test_a_queue_without_tasks_shows_0_or_says_so(played: Played, found: Panel) -> None:
    quiet = {**SOME, "queue": "quiet"}
    limits = ("objective", "lease", "limit", "tolerated")
    series = [
        one
        for target, several in zip(
            found.targets, answers(played, played.replicas, found, quiet), strict=True
        )
        if target["legendFormat"] not in limits
        for one in several
    ]
    assert series or found.no_value
    # What is empty is meant to be: a panel that loses its zeros is found here.
    assert bool(series) != (found.title in QUIET), found.title


def query(title: str, ref: str = "A", *, uid: str = DEPTH) -> str:
    """The expression of a query, for the queue `payment`."""
    (target,) = [t for t in panel(uid, title).targets if t["refId"] == ref]
    return fill(uid, target["expr"], SOME)


def test_every_fault_was_played(played: Played) -> None:
    assert set(played.spans) == set(FAULTS)


def test_dead_workers_make_the_queue_late_and_page(played: Played) -> None:
    assert played.most("crash-all", query("Lateness in objectives, top ten", uid=ONCALL)) > 5
    firing = query("Firing alerts", uid=ONCALL)
    start, end = played.spans["crash-all"]
    names = {labels["alertname"] for labels, _ in ask(played.replicas, firing, start, end + 3)}
    assert "TableQueueTasksLate" in names
    assert played.most("crash-all", query("Expired leases and reclaims")) > 0


def test_crashes_show_as_reclaims(played: Played) -> None:
    assert played.most("crash", query("Expired leases and reclaims", "B")) > 0


def test_poison_fails_and_shows_by_its_attempts(played: Played) -> None:
    assert played.most("poison", query("Failed in the last hour, by task type")) > 0
    attempts = query("Most attempts of a live task")
    worst = {
        labels["task_type"]: max(values)
        for labels, values in ask(played.replicas, attempts, *played.spans["poison"])
    }
    assert worst["poison"] > 2


def test_an_outage_makes_attempts_fail(played: Played) -> None:
    assert played.most("outage", query("Share of attempts failing", uid=ONCALL)) > 0.6


def test_a_held_snapshot_has_a_holder(played: Played) -> None:
    held = query("Who holds the horizon, by time")
    start, end = played.spans["held-snapshot"]
    found = {
        labels["holder"]: max(values) for labels, values in ask(played.replicas, held, start, end)
    }
    assert found["session"] > 2


def test_a_lease_shorter_than_the_work_is_said(played: Played) -> None:
    ratio = query("Lease and batch advice", "E")
    assert played.most("slow", ratio) > 0.5
    at_end = (played.ended, played.ended)
    suggested = max(played.values(query("Lease and batch advice", "F"), *at_end))
    # The slow neighbour's answers took one and a half leases.
    assert suggested >= 1.5 * TIMINGS.lease
    batches = played.values(query("Lease and batch advice", "G"), *at_end)
    assert min(batches) >= 1


def test_a_queue_that_cannot_be_read_has_its_row(played: Played) -> None:
    assert played.values(query("Queues not being read", uid=ONCALL), *[played.ended] * 2) == [0]
    everything = fill(ONCALL, panel(ONCALL, "Queues not being read").targets[0]["expr"], {})
    assert played.values(everything, *[played.ended] * 2) == [1]
    table = panel(ONCALL, "Queues, worst first")
    read = {
        labels["queue"]: values for labels, values in answers(played, played.replicas, table, {})[0]
    }
    assert read == {"payment": [1], "quiet": [1], "missing": [0]}


def test_no_exporter_at_all_is_not_healthy(played: Played) -> None:
    before = played.began - 3600
    unread = query("Queues not being read", uid=ONCALL)
    assert played.values(unread, before, before) == [-1]


def test_rows_of_the_table_share_their_labels(played: Played) -> None:
    for server, more in ((played.replicas, set[str]()), (played.labelled, set(LABELS))):
        table = answers(played, server, panel(ONCALL, "Queues, worst first"), {})
        for column in table:
            for labels, _ in column:
                assert set(labels) == {"job", "database", "queue"} | more


def test_replicas_count_once(played: Played) -> None:
    table = panel(ONCALL, "Queues, worst first")
    counts = []
    for server in (played.replicas, played.labelled):
        column = dict(zip("ABCDEFG", answers(played, server, table, SOME), strict=True))
        counts.append(
            {name: column[ref][0][1][0] for name, ref in (("failed", "D"), ("ready", "E"))}
        )
    assert counts[0] == counts[1] == played.truth
    assert played.truth["ready"] > 0


@pytest.mark.parametrize("queue", ["payment", "quiet"])
def test_a_queue_shows_its_own_table_only(played: Played, queue: str) -> None:
    for found in PANELS:
        values = {**SOME, "queue": queue}
        for series in answers(played, played.replicas, found, values):
            tables = {labels["table"] for labels, _ in series if "table" in labels}
            assert tables <= {f"public.{queue}"}, str(found)
