"""One queue under examination: everything that the checks need to know of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..access import Shape
from ..config import QueueConfig
from ..model import QueueModel
from ..postgres import Connection, Session
from .catalog import Catalog
from .findings import Finding, Severity, StatementCost


@dataclass(frozen=True)
class Subject:
    """A queue that can be read. ``missing`` maps each expression that does not fit its table to
    what the server said; ``model`` is without them."""

    config: QueueConfig
    connection: Connection
    session: Session
    catalog: Catalog
    model: QueueModel
    shape: Shape
    missing: Mapping[str, str]
    statements: Sequence[StatementCost] = ()

    def finding(
        self,
        severity: Severity,
        check: str,
        what: str,
        why: str,
        *,
        sql: Sequence[str] = (),
        advice: Sequence[str] = (),
    ) -> Finding:
        """A finding about this queue."""
        return Finding(
            severity, check, self.config.database, self.config.name, what, why,
            tuple(sql), tuple(advice),
        )  # fmt: skip
