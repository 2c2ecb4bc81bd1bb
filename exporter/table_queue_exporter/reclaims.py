"""Which tasks were claimed again over an expired lease: pure, from two looks at the same rows.

Comparing attempts alone would call every rolling deploy a wave of reclaims: workers that stop give
their tasks back, and the next claim makes attempts grow as well. What tells them apart is whether
the lease that was seen had run out.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .reading import Row
from .slices import Key


@dataclass(frozen=True)
class Watched:
    """A claimed task whose lease was about to end. Times in microseconds, None where there is
    none."""

    key: Key
    attempts: int
    due: int | None
    lease: int | None
    waiting: bool = False


def read_watched(row: Row, key: Key) -> Watched:
    """One row of the lease watch or of a lookup."""

    def integer(name: str) -> int | None:
        value = row[name]
        return None if value is None else int(str(value))

    return Watched(
        key, integer("attempts") or 0, integer("due"), integer("lease"), bool(row["waiting"])
    )


def is_reclaim(before: Watched, after: Watched, now: int) -> bool:
    """Whether a watched task was taken over after its lease had run out.

    ``now`` is the server's time of the second look. Attempts grew, the lease that was seen is
    over, and the task did not go back to wait in between: a failure would have moved ``due``. With
    ``due`` moved, the failure was the taker's, unless attempts grew only once: then the first
    owner failed in time and somebody claimed the retry.
    """
    grown = after.attempts - before.attempts
    if grown <= 0 or before.lease is None or before.lease > now:
        return False
    if after.due == before.due:
        return True
    return after.waiting or grown >= 2


def unclaimed(before: Mapping[str, Watched], after: Mapping[str, Watched]) -> dict[str, Watched]:
    """Watched tasks whose lease ran out and which nobody has taken again yet.

    For tables where one column is lease and due time: there such a task is just waiting again, and
    no look at the claimed tasks would find it any more.
    """
    return {
        task_id: found
        for task_id, watched in before.items()
        if (found := after.get(task_id)) is not None
        and (found.attempts, found.lease) == (watched.attempts, watched.lease)
    }


def count_reclaims(
    before: Mapping[str, Watched], after: Mapping[str, Watched], now: int
) -> Iterable[Key]:
    """The key of each task that was reclaimed between two looks."""
    for task_id, watched in before.items():
        found = after.get(task_id)
        if found is not None and is_reclaim(watched, found, now):
            yield watched.key
