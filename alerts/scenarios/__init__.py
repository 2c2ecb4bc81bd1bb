"""What queues do, and which alerts that must raise: the source of the promtool tests."""

from alerts.scenarios import (
    arrivals,
    day,
    failures,
    lateness,
    retries,
    tables,
    watchers,
    workers,
)

# One test file each.
FILES = {
    "arrivals": arrivals.SCENARIOS,
    "day": day.SCENARIOS,
    "failures": failures.SCENARIOS,
    "lateness": lateness.SCENARIOS,
    "retries": retries.SCENARIOS,
    "tables": tables.SCENARIOS,
    "watchers": watchers.SCENARIOS,
    "workers": workers.SCENARIOS,
}
ALL = tuple(scenario for scenarios in FILES.values() for scenario in scenarios)
