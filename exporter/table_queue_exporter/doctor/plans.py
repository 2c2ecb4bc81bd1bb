"""What each generated statement costs, by its own plan, within the exporter's own time-outs."""

from collections.abc import Collection, Iterator, Sequence
from typing import cast

from ..access import Select
from ..errors import PollError
from ..postgres import Connection, Session
from ..reading import Row, number
from .catalog import Catalog
from .findings import Finding, Severity, StatementCost, format_bytes
from .indexes import Wanted
from .subject import Subject

MANY_PAGES = 5_000
"""Pages (40 MB) that no bounded statement reads from a table that is well vacuumed."""
LARGE_SCAN = 1_048_576
"""Bytes of a table up to which reading it whole is no worse than an index."""


async def costs(
    connection: Connection, selects: Sequence[Select], session: Session, catalog: Catalog
) -> list[StatementCost]:
    """Runs each SELECT under EXPLAIN. Raises PollError where the connection is lost."""
    found = []
    for select in selects:
        explain = f"EXPLAIN (ANALYZE, BUFFERS, VERBOSE, TIMING OFF, FORMAT JSON) {select.sql}"
        try:
            (rows,) = await connection.run([Select(select.name, explain, select.settings)], session)
        except PollError as error:
            if not connection.connected:
                raise
            found.append(StatementCost(select.name, error=str(error)))
        else:
            found.append(_cost(select.name, rows[0], catalog))
    return found


def _cost(name: str, row: Row, catalog: Catalog) -> StatementCost:
    (plan,) = cast(list[Row], row["QUERY PLAN"])
    root = cast(Row, plan["Plan"])
    sizes = {(leaf.table.schema, leaf.table.name): leaf.bytes for leaf in catalog.leaves}
    scanned: dict[str, int] = {}
    for node in _nodes(root):
        key = (str(node.get("Schema")), str(node.get("Relation Name")))
        if node["Node Type"] == "Seq Scan" and sizes.get(key) and number(node["Actual Loops"]) > 0:
            scanned[".".join(key)] = sizes[key]
    return StatementCost(
        name,
        int(number(root["Shared Hit Blocks"]) + number(root["Shared Read Blocks"])),
        number(plan["Execution Time"]),
        scanned,
    )


def _nodes(node: Row) -> Iterator[Row]:
    yield node
    for child in cast(list[Row], node.get("Plans", [])):
        yield from _nodes(child)


def plan_findings(subject: Subject, missing: Sequence[Wanted]) -> list[Finding]:
    """Statements that do not end in time, or read too much.

    Where a missing index explains it, that index is the remedy, and a mere sequential scan is told
    with it.
    """
    explained = set().union(*(wanted.helps for wanted in missing))
    budget = subject.config.budget * subject.config.interval * 1000
    found = []
    for cost in subject.statements:
        if cost.error:
            found.append(
                subject.finding(
                    Severity.ERROR,
                    "statement_failed",
                    f"{cost.name} does not end: {cost.error}",
                    "each poll fails here; what comes before it is still read",
                    **_remedy(subject, cost, explained),
                )
            )
        elif (cost.pages or 0) > MANY_PAGES or (cost.milliseconds or 0) > budget:
            found.append(
                subject.finding(
                    Severity.WARNING,
                    "statement_cost",
                    str(cost),
                    "a poll should touch some hundred pages: an index is missing, or dead rows "
                    f"stand in the way; beyond {budget:.0f} ms polls are stretched",
                    **_remedy(subject, cost, explained),
                )
            )
        elif cost.scanned_bytes > LARGE_SCAN and cost.name not in explained:
            found.append(
                subject.finding(
                    Severity.WARNING,
                    "sequential_scan",
                    f"{cost.name} reads {', '.join(cost.scanned)} whole: "
                    f"{format_bytes(cost.scanned_bytes)}",
                    "the cost grows with every finished task that is kept, and no index that can "
                    "be made from the configured expressions would help",
                )
            )
    return found


def _remedy(
    subject: Subject, cost: StatementCost, explained: Collection[str]
) -> dict[str, tuple[str, ...]]:
    if cost.name in explained:
        return {"advice": ("make the missing indexes that name this statement",)}
    if not subject.catalog.is_table:
        return {}
    return {"sql": (f"VACUUM (ANALYZE) {subject.catalog.table.sql}",)}
