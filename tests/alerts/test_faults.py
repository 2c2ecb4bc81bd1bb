"""The short form of the fault drills; `make drill-alerts` plays them all."""

from __future__ import annotations

from table_queue_exporter.demo.faults import FAULTS
from tests.drill.faults import DRILLS, run


async def test_faults_reach_the_person_on_call() -> None:
    told: list[str] = []
    short = tuple(drill for drill in DRILLS if drill.name in ("idle", "server stopped"))
    await run(short, quiet=30, exporter_drill=True, tell=told.append)
    assert [line.split()[0] for line in told] == ["none", "idle", "server", "exporter"]


def test_every_fault_of_the_demo_has_a_drill() -> None:
    assert set(FAULTS) <= {drill.name for drill in DRILLS}
