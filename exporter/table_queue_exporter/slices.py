"""Exact counting by time slices: pure arithmetic, no SQL, no clock of its own.

Rows carry the time of an event (`finished_at`, `enqueued_at`). A transaction that is still open may
add rows with an old stamp, but none older than its own beginning. So before each count, *in an
earlier statement*, the beginnings of all open transactions are read: rows stamped before the oldest
of them (``safe``) can only be those that are visible already. Read in the same snapshot as the
count it would lose what commits between the two.

    base            mid                 tail
    ────────────┼───────────────────┼───────────────►
                T = safe            M = safe of young transactions

``base`` is final. ``mid`` can only grow when a transaction ends that is older than YOUNG: it is
read again when one of those has ended, not before, so that a session which never ends does not
make every poll read everything since it began. ``tail`` is read at each poll.

Times are integer microseconds since 1970, by the server's clock.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from .json_maps import Keyed

Vector = tuple[int, ...]
"""Sums and counts of one key; what each number means is the reader's business."""
Key = tuple[str, ...]
Totals = Keyed[Vector]

SECOND = 1_000_000
MARGIN = 1 * SECOND
"""pg_stat_activity may be a little behind."""
YOUNG = 60 * SECOND
MAX_LOOKBACK = 3600 * SECOND
"""How long an open transaction may hold ``safe`` back; past it, exactness is given up and said."""
BLIND_LOOKBACK = 300 * SECOND
"""Margin where the sessions of others cannot be seen."""
FOREIGN_LOOKBACK = 30 * SECOND
"""Margin where another clock than this server's stamps the rows."""


@dataclass(frozen=True)
class Horizon:
    """What may still add rows with old stamps: read before a count.

    ``sessions`` maps each open transaction of another session to its beginning, ``prepared`` holds
    the keys of prepared transactions, whose beginning the server does not tell. ``replayed`` is set
    on a standby: how far it has come.
    """

    now: int
    sessions: Mapping[str, int]
    prepared: frozenset[str]
    sees_sessions: bool = True
    in_recovery: bool = False
    replayed: int | None = None


@dataclass(frozen=True)
class Server:
    """Which server answers: a changed system is another database, a changed timeline a failover."""

    system: str
    timeline: str


@dataclass(frozen=True)
class Marks:
    """Where a count splits, and who held it there.

    ``holders`` are the open transactions older than YOUNG. ``pins`` maps each prepared transaction
    to a time before which it cannot have begun. ``unpinned`` is what ``safe`` would be without
    prepared ones: the pin of those that the next poll meets first.
    """

    safe: int
    young_safe: int
    holders: frozenset[str]
    pins: Mapping[str, int]
    unpinned: int
    exact: bool


def marks(horizon: Horizon, previous: Marks | None, lookback: int | None = None) -> Marks:
    """The split points of the next count. ``lookback`` widens the margin, in microseconds.

    A prepared transaction that was not there at the previous poll had not begun then, or was among
    its sessions: either way it is no older than that poll's ``unpinned``.
    """
    margin = max(MARGIN, lookback or 0)
    if horizon.in_recovery:
        behind = (horizon.replayed or 0) - max(margin, FOREIGN_LOOKBACK)
        return Marks(behind, behind, frozenset(), {}, behind, exact=False)
    if not horizon.sees_sessions:
        behind = horizon.now - max(margin, BLIND_LOOKBACK)
        return Marks(behind, behind, frozenset(), {}, behind, exact=False)
    begun = dict(horizon.sessions)
    unpinned = min([horizon.now, *begun.values()]) - margin
    first_pin = unpinned if previous is None else previous.unpinned
    known = {} if previous is None else previous.pins
    pins = {key: known.get(key, first_pin) for key in horizon.prepared}
    begun |= {key: pin + margin for key, pin in pins.items()}
    old = {key: start for key, start in begun.items() if start < horizon.now - YOUNG}
    young = [start for key, start in begun.items() if key not in old]
    safe = min([horizon.now, *begun.values()]) - margin
    floor = horizon.now - MAX_LOOKBACK
    return Marks(
        safe=max(safe, floor),
        young_safe=min([horizon.now, *young]) - margin,
        holders=frozenset(old),
        pins=pins,
        unpinned=unpinned,
        exact=safe >= floor,
    )


@dataclass(frozen=True)
class Slice:
    """Rows that one read found, by where their stamps lie: below safe, below young_safe, above.

    ``upper`` is where the read was cut because it met its bound; every stamp is below it.
    """

    base: Totals
    mid: Totals
    tail: Totals
    upper: int | None


@dataclass(frozen=True)
class Slices:
    """What is known of one time column: T, M, and the totals below them."""

    position: int
    mid_position: int
    base: Totals = field(default_factory=dict)
    mid: Totals = field(default_factory=dict)
    holders: frozenset[str] = frozenset()
    behind: bool = False
    """Whether the last read was cut: there is more to read at once."""

    def start(self, now: Marks) -> int:
        """Where the next read must begin: at M, or at T when ``mid`` may have grown."""
        ended = not self.holders <= now.holders
        if ended or self.behind or now.safe > self.position:
            return self.position
        return self.mid_position

    def advanced(self, now: Marks, start: int, read: Slice) -> "Slices":
        """The state after a read that began at ``start``."""
        end = now.young_safe if read.upper is None else min(now.young_safe, read.upper)
        held = replace(self, holders=now.holders, behind=read.upper is not None)
        if start > self.position:
            # T is held, and mid has not grown: what lies between M and the new M joins it.
            mid = summed((self.mid, read.base, read.mid))
            return replace(held, mid=mid, mid_position=max(self.mid_position, end))
        reached = now.safe if read.upper is None else min(now.safe, read.upper)
        position = max(reached, self.position)
        return replace(
            held,
            position=position,
            mid_position=max(end, position),
            base=add(self.base, read.base),
            mid=read.mid,
        )


def add(a: Totals, b: Totals) -> dict[Key, Vector]:
    """Totals added key by key, number by number."""
    result = dict(a)
    for key, vector in b.items():
        have = result.get(key)
        result[key] = vector if have is None else tuple(map(sum, zip(have, vector, strict=True)))
    return result


def highest(a: Totals, b: Totals) -> dict[Key, Vector]:
    """The greater of each number: what was published once must never step back."""
    result = dict(a)
    for key, vector in b.items():
        have = result.get(key)
        result[key] = vector if have is None else tuple(map(max, zip(have, vector, strict=True)))
    return result


def summed(parts: Iterable[Totals]) -> dict[Key, Vector]:
    """Any number of totals added."""
    result: dict[Key, Vector] = {}
    for part in parts:
        result = add(result, part)
    return result
