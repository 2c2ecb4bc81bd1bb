"""Asks the planner which of its own indexes serve each library, and writes what the document says.

``python -m tests.support.generate_presets``
"""

import asyncio
import sys

from docs.presets_page import ACCESSES, dump
from table_queue_exporter.demo.server import LocalServer

from .presets import FACTS, indexes, inspected, schema
from .queues import execute


async def _all(server: LocalServer) -> dict[str, dict[str, list[str]]]:
    found = {}
    for name in FACTS:
        dsn = server.create_database(name.replace("-", "_"))
        execute(dsn, schema(name))
        found[name] = indexes(dsn, await inspected(dsn, name))
    return found


def main() -> None:
    """Writes docs/preset_accesses.yaml."""
    with LocalServer() as server:
        ACCESSES.write_text(dump(asyncio.run(_all(server))), encoding="utf-8")
    sys.stdout.write(f"{ACCESSES.name}\n")


if __name__ == "__main__":
    main()
