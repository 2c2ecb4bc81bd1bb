"""The Alertmanager example: who is told, how often, and what is left unsaid."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from alerts import rules
from alerts.thresholds import Settings
from tests.alerts.alertmanager import Alertmanager, Receiver, alertmanager, receiver, until
from tests.alerts.programs import ALERTS, program, run

EXAMPLE = ALERTS / "alertmanager.example.yaml"
RECEIVERS = {"critical": "pager", "warning": "channel", "info": "nowhere"}

QUEUE = {
    "cluster": "eu",
    "namespace": "mon",
    "job": "tqx",
    "database": "main",
    "queue": "payment",
}
DATABASE = {name: value for name, value in QUEUE.items() if name != "queue"}
JOB = {name: value for name, value in DATABASE.items() if name != "database"}
SEVERITIES = {alert.name: alert.severity for alert in rules.alerts(Settings())}


def alert(name: str, labels: dict[str, str], **more: str) -> dict[str, str]:
    return {"alertname": name, "severity": SEVERITIES[name], **labels, **more}


def test_configuration_is_valid() -> None:
    checked = run(program("amtool"), "check-config", EXAMPLE)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize(("name", "severity"), SEVERITIES.items())
def test_every_alert_goes_where_its_severity_says(name: str, severity: str) -> None:
    labels = [f"{label}={value}" for label, value in alert(name, QUEUE).items()]
    tested = run(
        program("amtool"),
        "config",
        "routes",
        "test",
        f"--config.file={EXAMPLE}",
        f"--verify.receivers={RECEIVERS[severity]}",
        *labels,
    )
    assert tested.returncode == 0, tested.stdout + tested.stderr


@pytest.fixture
def received() -> Iterator[Receiver]:
    with receiver() as listening:
        yield listening


@pytest.fixture
def running(tmp_path: Path, received: Receiver) -> Iterator[Alertmanager]:
    with alertmanager(tmp_path, received.url) as started:
        yield started


def test_one_page_per_queue_with_all_its_causes(running: Alertmanager, received: Receiver) -> None:
    running.post(
        alert("TableQueueStalled", QUEUE),
        alert("TableQueueTasksLate", QUEUE),
        alert("TableQueueAttemptsFailing", QUEUE, task_type="receipt"),
        alert("TableQueueTasksLate", {**QUEUE, "namespace": "other"}),
    )
    until(lambda: len(received.pages) >= 2, "two pages")
    titles = sorted(page["payload"]["summary"] for page in received.pages)
    assert [title.split(", ")[0] for title in titles] == [
        "1 firing: payment of main in other (eu)",
        "3 firing: payment of main in mon (eu)",
    ]
    assert set(titles[1].split(", ")[1:]) == {
        "TableQueueAttemptsFailing",
        "TableQueueStalled",
        "TableQueueTasksLate",
    }
    assert received.posts == []


def test_message_shows_what_a_woken_person_needs(running: Alertmanager, received: Receiver) -> None:
    running.post(
        alert("TableQueueTasksLate", QUEUE),
        summary="Tasks wait far longer than their objective.",
        description="Queue payment of database main: …",
        value="5m 10s",
        objective="1m 0s",
        runbook_url="https://runbooks/TableQueueTasksLate",
        dashboard_url="https://graphs/d/table-queue-depth?var-queue=payment",
    )
    until(lambda: len(received.pages) == 1, "a page")
    assert received.pages[0]["payload"]["custom_details"]["message"].splitlines() == [
        "*TableQueueTasksLate* (critical): Tasks wait far longer than their objective.",
        "Queue payment of database main: …",
        "Queue: payment",
        "Value: 5m 10s",
        "Objective: 1m 0s",
        "Runbook: https://runbooks/TableQueueTasksLate",
        "Dashboard: https://graphs/d/table-queue-depth?var-queue=payment",
    ]


def test_message_has_no_empty_lines_for_what_is_not_there(
    running: Alertmanager, received: Receiver
) -> None:
    running.post(
        alert("TableQueueConfigReloadFailed", JOB),
        summary="Refused.",
        description="See the log.",
        objective="",
        value="",
    )
    until(lambda: len(received.posts) == 1, "a message in the channel")
    (attachment,) = received.posts[0]["attachments"]
    assert attachment["title"] == "1 firing: tqx in mon (eu), TableQueueConfigReloadFailed"
    assert attachment["text"].splitlines() == [
        "*TableQueueConfigReloadFailed* (warning): Refused.",
        "See the log.",
    ]
    assert received.pages == []


INHIBITED = [
    ("TableQueueDatabaseDown", DATABASE, "TableQueueTasksLate", QUEUE),
    ("TableQueueDatabaseDown", DATABASE, "TableQueueVacuumBlocked", DATABASE),
    ("TableQueueExporterDown", JOB, "TableQueueUnwatched", QUEUE),
    ("TableQueueStalled", QUEUE, "TableQueueBacklogGrowing", QUEUE),
    ("TableQueueStalled", QUEUE, "TableQueueLeasesNotReclaimed", QUEUE),
    ("TableQueueStalled", QUEUE, "TableQueueWorkersNotReturning", QUEUE),
    ("TableQueueTasksLate", QUEUE, "TableQueueBacklogGrowing", QUEUE),
    ("TableQueueAttemptsFailing", QUEUE, "TableQueueRetryStorm", QUEUE),
    ("TableQueueFailuresSpike", QUEUE, "TableQueueFailures", QUEUE),
    ("TableQueueVacuumBlocked", DATABASE, "TableQueueBloated", QUEUE),
]


def test_resolved_problems_are_said(running: Alertmanager, received: Receiver) -> None:
    running.post(alert("TableQueueFailures", QUEUE), summary="Failed.", description="3 tasks.")
    until(lambda: len(received.posts) == 1, "a message in the channel")
    running.post(alert("TableQueueFailures", QUEUE), ended=True)
    until(lambda: len(received.posts) == 2, "a second message")
    (attachment,) = received.posts[1]["attachments"]
    assert attachment["title"] == "resolved: payment of main in mon (eu)"
    assert attachment["text"].splitlines() == ["Resolved: *TableQueueFailures* of payment"]


def test_causes_silence_what_follows_from_them_and_only_at_the_same_place(
    running: Alertmanager, received: Receiver
) -> None:
    """Each pair gets a cluster of its own; elsewhere the second alert must go on."""
    for number, (source, source_labels, target, target_labels) in enumerate(INHIBITED):
        here = {"cluster": f"here{number}"}
        running.post(alert(source, {**source_labels, **here}))
        running.post(alert(target, {**target_labels, **here}))
        for label in source_labels:
            elsewhere = {"cluster": f"there{number}{label}"}
            running.post(alert(source, {**source_labels, **elsewhere}))
            running.post(alert(target, {**target_labels, **elsewhere, label: f"elsewhere{number}"}))
    # An alert on absent exporters has no labels but those of its Prometheus: it silences nothing.
    running.post(alert("TableQueueExporterDown", {"cluster": "eu"}))
    running.post(alert("TableQueueUnwatched", QUEUE), alert("TableQueueTasksLate", QUEUE))
    running.post(alert("TableQueueConfigReloadFailed", {"cluster": "eu"}))

    inhibited = {f"here{number}" for number in range(len(INHIBITED))}
    until(lambda: running.inhibited("cluster") >= inhibited, "all inhibitions")
    until(lambda: len(received.posts) > 10, "the others' messages")
    assert running.inhibited("cluster") == inhibited
