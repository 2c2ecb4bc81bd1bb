"""`python -m payments create` makes the table; `python -m payments enqueue TYPE COUNT [JSON]`."""

import json
import sys

from .models import Base, Session, engine
from .queue import enqueue


def main(arguments: list[str]) -> None:
    """Runs one command."""
    match arguments:
        case ["create"]:
            Base.metadata.create_all(engine)
        case ["enqueue", task_type, count, *payload]:
            with Session.begin() as session:
                for _ in range(int(count)):
                    enqueue(session, task_type, json.loads(payload[0]) if payload else {})
        case _:
            sys.exit(__doc__)


main(sys.argv[1:])
