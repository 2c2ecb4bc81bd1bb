"""What a table's indexes make cheap, and the SELECTs that are built for it."""

from dataclasses import dataclass
from enum import StrEnum

SETTINGS_WALK = ("enable_bitmapscan=off", "enable_sort=off")
"""A bitmap or a sort would read the whole group before LIMIT could cut it."""
SETTINGS_FREE = ("enable_bitmapscan=on", "enable_sort=on")


class Access(StrEnum):
    """What the table's indexes make cheap. Each name is one probe of the planner."""

    WALK_BY_DUE = "waiting tasks of each type in due order"
    WALK_BY_AGE = "waiting tasks of each type in enqueue order"
    WAITING_BY_AGE = "waiting tasks in enqueue order"
    WAITING_BY_DUE = "waiting tasks in due order"
    PROCESSING = "claimed tasks"
    PROCESSING_BY_LEASE = "claimed tasks in the order in which their leases end"
    FAILED_BY_FINISH = "failed tasks by finish time"
    NEWEST_ENQUEUED = "the newest task of each queue"
    NEWEST_FINISHED = "the newest finished task of each queue"
    ENQUEUED_BY_TIME = "tasks by enqueue time"
    FINISHED_BY_TIME = "finished tasks by finish time"
    FINISHED_BY_OUTCOME = "finished tasks of each outcome by finish time"
    TASK_BY_ID = "one task by its id"


WALKS = frozenset((Access.WALK_BY_DUE, Access.WALK_BY_AGE))


@dataclass(frozen=True)
class Shape:
    """What is known of a table beyond its model: cheap accesses, and keys that may be NULL.

    ``walks`` holds, for each predicate of ``waiting``, the WALK_ accesses that serve it: where one
    serves some predicates only, those are walked and the rest is read in a bounded list.
    """

    accesses: frozenset[Access]
    nullable: frozenset[str] = frozenset(("queue", "task_type", "index_key", "due_at"))
    walks: tuple[frozenset[Access], ...] = ()

    def walks_of(self, part: int) -> frozenset[Access]:
        """How the predicate of that number can be walked."""
        return self.walks[part] if self.walks else self.accesses & WALKS


@dataclass(frozen=True)
class Select:
    """One SELECT of a message, with the planner settings that it needs."""

    name: str
    sql: str
    settings: tuple[str, ...] = SETTINGS_FREE
