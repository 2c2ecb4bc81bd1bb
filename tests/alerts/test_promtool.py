"""promtool's unit tests pass on the committed files."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from alerts.generate import TESTS
from tests.alerts.programs import program, run


def test_rules_do_what_the_scenarios_say() -> None:
    promtool = program("promtool")
    files = sorted(TESTS.glob("*.test.yaml"))
    assert files
    with ThreadPoolExecutor(max_workers=2) as pool:
        results = list(pool.map(lambda path: run(promtool, "test", "rules", path), files))
    failed = [result.stdout + result.stderr for result in results if result.returncode]
    assert not failed, "\n".join(failed)
