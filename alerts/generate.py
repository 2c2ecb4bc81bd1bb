"""Write the rule file, its tests and the list of alerts: `python -m alerts.generate`."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path

from alerts import readme, rules
from alerts.scenarios import FILES, promtool
from alerts.thresholds import Links, Settings

HERE = Path(__file__).parent
RULES = HERE / "table-queue.rules.yaml"
TESTS = HERE / "tests"
README = HERE / "README.md"


def rule_file(settings: Settings) -> str:
    """Return the text of the rule file."""
    return rules.HEADER + rules.to_yaml(rules.document(settings))


def committed_files() -> dict[Path, str]:
    """Return every generated file of the repository with the text that it should have."""
    settings = Settings()
    tests = {
        TESTS / f"{name}.test.yaml": promtool.test_file(f"../{RULES.name}", settings, scenarios)
        for name, scenarios in FILES.items()
    }
    return {
        RULES: rule_file(settings),
        **tests,
        README: readme.with_alerts(README.read_text(), rules.alerts(settings)),
    }


def main(arguments: list[str] | None = None) -> int:
    """Write the committed files, or with `--output` a rule file of other settings."""
    links = Links()
    parser = argparse.ArgumentParser(prog="python -m alerts.generate", description=__doc__)
    parser.add_argument("--output", type=Path, help="write the rule file here, and nothing else")
    parser.add_argument(
        "--scale", type=float, default=1, help="let all time run this many times as fast"
    )
    parser.add_argument("--runbooks", default=links.runbooks, help="where the runbooks are")
    parser.add_argument("--dashboards", default=links.dashboards, help="where Grafana is")
    options = parser.parse_args(arguments)
    links = Links(options.runbooks.rstrip("/"), options.dashboards.rstrip("/"))
    settings = dataclasses.replace(Settings(), links=links).scaled(options.scale)
    if options.output:
        options.output.write_text(rule_file(settings))
        return 0
    if settings != Settings():
        parser.error("a rule file of other settings needs --output")
    for path, text in committed_files().items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
