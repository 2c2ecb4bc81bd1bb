"""A small fault in any rule breaks a promtool test."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.alerts.mutants import ALERTS, EQUIVALENT, Trial, all_mutants
from tests.alerts.programs import program, run

FAILED_CHECK = re.compile(r'^ +expr: "[^\n]*alertname=\\"\w+?_m(\d+)\\"', re.MULTILINE)
FAILED_RULE = re.compile(r"rule: [^\n]*?_m(\d+), time: [^\n]* err: ")


def killed(trial: Trial, directory: Path, promtool: str) -> set[int]:
    """Return the mutants that a test notices."""
    noticed: set[int] = set()
    rules, tests = directory / f"{trial.alert}.yaml", directory / f"{trial.alert}.test.yaml"
    while True:
        rules.write_text(trial.rule_file())
        tests.write_text(trial.test_file(rules.name))
        result = run(promtool, "test", "rules", tests)
        output = result.stdout + result.stderr
        unmutated = re.compile(rf'^ +expr: "[^\n]*alertname=\\"{trial.alert}\\"', re.MULTILINE)
        assert not unmutated.search(output), output[:4000]
        # A rule that cannot be evaluated ends its scenario: drop it and look at the others.
        broken = {int(number) for number in FAILED_RULE.findall(output)}
        noticed |= broken | {int(number) for number in FAILED_CHECK.findall(output)}
        if not broken:
            assert result.returncode == 0 or noticed, output[:4000]
            return noticed
        for number in broken:
            trial.leave_out(number)


def run_trials(trials: list[Trial], directory: Path, promtool: str) -> set[int]:
    """Run trials side by side, the longest first, and return the mutants that were noticed."""
    ordered = sorted(trials, key=lambda trial: -trial.cost * len(trial.mutants))
    with ThreadPoolExecutor(max_workers=2) as pool:
        return set().union(*pool.map(lambda trial: killed(trial, directory, promtool), ordered))


def test_every_mutant_is_noticed(tmp_path: Path) -> None:
    promtool = program("promtool")
    mutants = dict(enumerate(all_mutants()))
    touched = sorted((Trial(alert, mutants) for alert in ALERTS), key=lambda trial: trial.cost)
    for trial in touched:
        assert len(trial.mutants) >= 5, f"too few mutants of {trial.alert}"

    # A mutant of a shared record is tried on the cheapest alert first, on the others if need be.
    first: list[Trial] = []
    tried: set[int] = set()
    for trial in touched:
        first.append(Trial(trial.alert, {n: mutants[n] for n in trial.mutants if n not in tried}))
        tried |= trial.mutants.keys()
    assert tried == mutants.keys(), "a mutant touches no alert"
    noticed = run_trials(first, tmp_path, promtool)

    left = {n: mutant for n, mutant in mutants.items() if n not in noticed}
    again = [Trial(trial.alert, left) for trial in touched]
    noticed |= run_trials([trial for trial in again if trial.mutants], tmp_path, promtool)

    survivors = {mutant.name for n, mutant in mutants.items() if n not in noticed}
    unexplained = survivors - EQUIVALENT.keys()
    assert not unexplained, "\n" + "\n".join(sorted(unexplained))
    assert EQUIVALENT.keys() == survivors, "explained, but noticed after all"
