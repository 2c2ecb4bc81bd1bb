"""The committed files are what the code writes, and can be installed anywhere."""

from __future__ import annotations

import json
import re
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboards import generate
from tests.dashboards.boards import BOARDS, HERE

FILES = generate.committed_files()
ROOT = HERE.parent


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_is_fresh(path: Path) -> None:
    assert path.read_text("utf-8") == FILES[path], "run: make generate"


def test_the_builders_are_those_of_the_promised_grafana() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    pinned = [r for r in project["optional-dependencies"]["dev"] if "grafana" in r]
    assert pinned == [f"grafana-foundation-sdk=={version('grafana-foundation-sdk')}"]
    assert pinned[0].endswith("!11.6.0")


def test_make_generate_writes_all_generated_files() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for module in ("docs", "alerts", "dashboards"):
        assert f"-m {module}.generate" in makefile


@pytest.mark.parametrize("uid", BOARDS)
def test_nothing_belongs_to_one_installation(uid: str) -> None:
    board = BOARDS[uid]
    assert board["uid"] == uid
    assert "id" not in board
    assert "version" not in board
    assert board["editable"] is False
    assert set(_data_sources(board)) == {"${datasource}"}
    # Relative links only: wherever Grafana runs, and under whatever path.
    assert re.findall(r'"url": "(?!/d/table-queue-(?:oncall|depth)\?)', json.dumps(board)) == []
    assert not re.search(r"https?://", json.dumps(board))


def _data_sources(data: Any) -> list[str]:
    if isinstance(data, list):
        return [uid for item in data for uid in _data_sources(item)]
    if not isinstance(data, dict):
        return []
    found = [data["datasource"]["uid"]] if "datasource" in data else []
    return found + [uid for item in data.values() for uid in _data_sources(item)]


def test_provisioning_finds_what_is_there() -> None:
    (sources,) = (HERE / "provisioning" / "datasources").glob("*.yaml")
    (source,) = yaml.safe_load(sources.read_text("utf-8"))["datasources"]
    assert source["type"] == "prometheus"
    assert source["url"] == "${PROMETHEUS_URL}"
    assert "uid" not in source
    (providers,) = (HERE / "provisioning" / "dashboards").glob("*.yaml")
    (provider,) = yaml.safe_load(providers.read_text("utf-8"))["providers"]
    assert provider["type"] == "file"
    assert provider["allowUiUpdates"] is False
    readme = (HERE / "README.md").read_text("utf-8")
    assert f"`{provider['options']['path']}/`" in readme
    assert sorted(path.stem for path in HERE.glob("*.json")) == sorted(BOARDS)


def test_the_page_lists_every_panel() -> None:
    page = (ROOT / "docs" / "dashboards.md").read_text("utf-8")
    for board in BOARDS.values():
        assert f"## {board['title']}\n" in page
        for panel in board["panels"]:
            heading = "### {}" if panel["type"] == "row" else "- **{}** ("
            assert heading.format(panel["title"]) in page


@pytest.mark.parametrize("path", sorted(HERE.glob("*.py")), ids=lambda path: path.name)
def test_modules_are_short(path: Path) -> None:
    assert len(path.read_text("utf-8").splitlines()) < 300
