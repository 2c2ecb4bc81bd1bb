"""Runbooks: complete, and every statement in them runs on the reference queue."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import psycopg
import pytest

from alerts import rules
from alerts.thresholds import Settings
from table_queue_exporter.demo.server import LocalServer
from tests.alerts.programs import ALERTS

RUNBOOKS = ALERTS / "runbooks"
NAMES = [alert.name for alert in rules.alerts(Settings())]
SECTIONS = ["Meaning", "Impact", "Diagnosis", "Mitigation"]
# Fenced statements may be indented, as parts of a list.
STATEMENT = re.compile(r"^ *```sql\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)

TASKS = """
INSERT INTO payment (task_type, status, attempts, created_at, next_attempt_at, claimed_until,
                     started_at, finished_at, last_error)
SELECT 'receipt', status, n % 7, now() - n * interval '1 minute',
       now() + (n % 3 - 1) * interval '20 minutes',
       CASE status WHEN 'PROCESSING' THEN now() + (n % 3 - 1) * interval '20 minutes' END,
       now() - interval '30 seconds',
       CASE WHEN status IN ('DONE', 'FAILED', 'CANCELLED') THEN now() END,
       CASE WHEN n % 2 = 0 THEN 'connection refused by 10.0.0.7' END
FROM generate_series(1, 20) AS n,
     unnest(ARRAY['NEW', 'PROCESSING', 'DONE', 'FAILED', 'CANCELLED']) AS status
"""


def test_every_alert_has_a_runbook_and_no_runbook_is_orphaned() -> None:
    assert sorted(path.stem for path in RUNBOOKS.glob("*.md")) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_runbook_has_its_four_sections_filled(name: str) -> None:
    text = (RUNBOOKS / f"{name}.md").read_text()
    assert text.startswith(f"# {name}\n")
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    assert parts[1::2] == SECTIONS
    assert all(len(body.strip()) > 20 for body in parts[2::2])


@pytest.mark.parametrize("name", NAMES)
def test_links_between_runbooks_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", (RUNBOOKS / f"{name}.md").read_text()):
        assert (RUNBOOKS / target).is_file(), target


@pytest.fixture(scope="module")
def demo(newest_server: LocalServer) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    dsn = newest_server.create_database("runbooks")
    schema = files("table_queue_exporter.demo").joinpath("schema.sql").read_text()
    with psycopg.connect(dsn) as connection:
        connection.execute(schema.encode())
        connection.execute(TASKS)
        connection.commit()
        yield connection


@pytest.mark.parametrize("name", NAMES)
def test_statements_run_as_they_stand(name: str, demo: psycopg.Connection[tuple[Any, ...]]) -> None:
    statements = STATEMENT.findall((RUNBOOKS / f"{name}.md").read_text())
    for statement in statements:
        # Rolled back: the statements that mend something must leave the next ones their rows.
        try:
            demo.execute(statement.encode())
        finally:
            demo.rollback()
    assert demo.info.status == psycopg.pq.ConnStatus.OK


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("TableQueueFailures", "FAILED"),
        ("TableQueueLeasesNotReclaimed", "PROCESSING"),
        ("TableQueueRetryStorm", "NEW"),
    ],
)
def test_mitigations_reach_the_rows_that_they_mean(
    name: str, status: str, demo: psycopg.Connection[tuple[Any, ...]]
) -> None:
    """No row of another status changes, and some of the right one do."""
    statements = STATEMENT.findall((RUNBOOKS / f"{name}.md").read_text())
    (update,) = [text for text in statements if text.startswith("UPDATE")]
    before = {row[0]: row for row in demo.execute("SELECT * FROM payment")}
    demo.execute(update.encode())
    after = {row[0]: row for row in demo.execute("SELECT * FROM payment")}
    demo.rollback()
    changed = [key for key, row in before.items() if after[key] != row]
    assert changed
    assert {before[key][2] for key in changed} == {status}
    # Attempts only ever grow: with the id they tell one claim from the next.
    assert all(after[key][5] == before[key][5] for key in changed)
