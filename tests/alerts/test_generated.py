"""The committed files are what the generator writes."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from alerts import generate
from alerts.thresholds import Links, Settings, duration
from tests.alerts.programs import program, run

FILES = generate.committed_files()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_is_fresh(path: Path) -> None:
    assert path.read_text() == FILES[path], "run: python -m alerts.generate"


def test_no_group_is_larger_than_hosted_rulers_allow() -> None:
    groups = yaml.safe_load(generate.RULES.read_text())["groups"]
    assert {
        group["name"]: len(group["rules"]) for group in groups if len(group["rules"]) > 20
    } == {}


@pytest.mark.parametrize("scale", [1, 7, 30])
def test_rules_are_clean_at_every_scale(scale: int, tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    assert generate.main([f"--scale={scale}", f"--output={path}"]) == 0
    checked = run(program("promtool"), "check", "rules", "--lint=all", "--lint-fatal", path)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_scaling_divides_times_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    generate.main(["--scale=30", f"--output={path}"])
    rules = {
        rule["alert"]: rule
        for group in yaml.safe_load(path.read_text())["groups"]
        for rule in group["rules"]
        if "alert" in rule
    }
    stalled = rules["TableQueueStalled"]
    assert stalled["for"] == "4s"
    assert stalled["keep_firing_for"] == "10s"
    assert "claimable_age_seconds:max > 20\n" in stalled["expr"]
    assert "offset 20s" in stalled["expr"]
    assert "increase20s > 0" in stalled["expr"]
    # Objectives come as metrics and counts within a window stay as they are.
    late = rules["TableQueueTasksLate"]["expr"]
    assert "> 5 * queue:table_queue_objective_seconds:max" in late
    assert "increase20s >= 10" in rules["TableQueueAttemptsFailing"]["expr"]
    assert Settings().scaled(30).levels == Settings().levels


def test_link_bases_are_one_setting_each(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    generate.main(
        ["--runbooks=https://wiki/rb/", "--dashboards=https://graphs/", f"--output={path}"]
    )
    text = path.read_text()
    assert Links().runbooks not in text
    assert Links().dashboards not in text
    assert "runbook_url: https://wiki/rb/TableQueueTasksLate\n" in text
    assert "dashboard_url: https://graphs/d/table-queue-depth?" in text


def test_other_settings_never_overwrite_the_committed_file() -> None:
    with pytest.raises(SystemExit):
        generate.main(["--scale=30"])


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(30, "30s"), (90, "1m30s"), (5400, "1h30m"), (0.5, "500ms"), (2 / 3, "667ms"), (86400, "24h")],
)
def test_durations_read_as_prometheus_writes_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text
