"""What ``sql`` prints: it runs as it stands, and its GRANTs are enough and no more."""

import re
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.support.queues import PAYMENT, REFERENCE_SCHEMA, configuration, execute, read_once


def printed(config: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "table_queue_exporter", "sql", f"--config.file={config}"]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, check=True).stdout


async def test_the_printed_statements_run_and_the_grants_suffice(
    newest_dsn: str, tmp_path: Path
) -> None:
    execute(newest_dsn, REFERENCE_SCHEMA, "INSERT INTO payment (task_type) VALUES ('a')")
    file = tmp_path / "config.yaml"
    file.write_text(configuration(newest_dsn, PAYMENT))
    text = printed(file)
    role = "printed_" + newest_dsn.rsplit("_", 1)[1]
    grants = re.findall(r"^GRANT .*;$", text, re.MULTILINE)
    assert len(grants) == 3
    execute(
        newest_dsn,
        f"CREATE ROLE {role} LOGIN",
        *(grant.replace("table_queue_exporter", role) for grant in grants),
    )
    monitor = newest_dsn.replace("postgres@", f"{role}@")
    blocks = re.findall(r"^-- ([^\n]*)\nBEGIN;\n(.*?)\nCOMMIT;$", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 6, [title for title, _ in blocks]
    with psycopg.connect(monitor, autocommit=True) as connection:
        for _, block in blocks:
            connection.execute(f"BEGIN;{block}COMMIT".encode())
    page = await read_once(configuration(monitor, PAYMENT))
    assert page.value("up") == 1
    assert page.value("tasks", status="ready") == 1
    assert page.value("events_exact") == 1
    # Not one column more than the statements read.
    with psycopg.connect(monitor) as connection, pytest.raises(psycopg.Error):
        connection.execute("SELECT payload FROM payment")
    (columns,) = re.findall(r"GRANT SELECT \((.*)\) ON", text)
    for column in columns.split(", "):
        execute(newest_dsn, f"REVOKE SELECT ({column}) ON payment FROM {role}")
        page = await read_once(configuration(monitor, PAYMENT))
        assert page.value("poll_errors_total", reason="permission") == 1, column
        execute(newest_dsn, f"GRANT SELECT ({column}) ON payment TO {role}")


def test_offline_it_assumes_everything(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(configuration("postgresql://nowhere.invalid/app", PAYMENT))
    text = printed(file, "--offline", "--queue=payment")
    assert "WITH RECURSIVE walk" in text
    assert "events, in one snapshot" in text
