"""The event counters of one queue: from what a poll read to what may be published. Pure.

An EventState is never changed: a poll makes a new one, which is saved before it is published. When
saving fails the old one stays, and the next poll counts the same events again from there.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from .event_layout import Layout
from .json_maps import Keyed
from .reading import Row
from .reclaims import Watched, count_reclaims
from .slices import Key, Marks, Server, Slice, Slices, Totals, Vector, add, highest, summed

Labels = Callable[[Row], Key]
"""Turns a row's queue and task type into the labels under which it is counted."""


@dataclass(frozen=True)
class Counted:
    """One time column's slices and what of them may be seen.

    ``offset`` makes up for events that a failover lost: what was published must never step back,
    and must go on growing. ``rebase`` asks for it, at the next read that is not cut.
    """

    slices: Slices
    published: Totals = field(default_factory=dict)
    offset: Totals = field(default_factory=dict)
    rebase: bool = False


@dataclass(frozen=True)
class Attempts:
    """Attempts begun and attempts beyond each task's first: pairs, by labels.

    A sum that no poll can miss: whatever happens between two polls, attempts stay in the rows.
    ``baseline`` is what the sums were when counting began.
    """

    baseline: Totals
    published: Totals = field(default_factory=dict)


@dataclass(frozen=True)
class RowCounters:
    """Rows inserted and deleted, from the statistics of each leaf partition.

    ``leaves`` maps a partition's OID to what its statistics said last.
    """

    leaves: Mapping[str, Vector] = field(default_factory=dict)
    totals: Vector = (0, 0)

    def advanced(self, leaves: Mapping[str, Vector]) -> "RowCounters":
        """Adds what grew. A new leaf or a reset of its statistics is a new baseline."""
        grown = [0, 0]
        for oid, now in leaves.items():
            was = self.leaves.get(oid)
            if was is not None and all(n >= w for n, w in zip(now, was, strict=True)):
                grown = [g + n - w for g, n, w in zip(grown, now, was, strict=True)]
        return RowCounters(leaves, (self.totals[0] + grown[0], self.totals[1] + grown[1]))


@dataclass(frozen=True)
class EventState:
    """Everything that event counting must not forget.

    ``held`` maps labels that are new to the seconds for which they were shown at 0 so far;
    ``shown`` holds those that were shown for long enough.
    """

    server: Server | None = None
    marks: Marks | None = None
    finished: Counted | None = None
    enqueued: Counted | None = None
    attempts: Attempts | None = None
    retries: Totals = field(default_factory=dict)
    reclaims: Totals = field(default_factory=dict)
    watch: Mapping[str, Watched] = field(default_factory=dict)
    rows: RowCounters | None = None
    held: Keyed[float] = field(default_factory=dict)
    shown: frozenset[Key] = frozenset()

    @property
    def behind(self) -> bool:
        """Whether there is more to read at once."""
        return any(counted.slices.behind for counted in (self.finished, self.enqueued) if counted)

    def on(self, server: Server) -> "EventState":
        """The state to go on with on a server.

        Another system is another database: it starts afresh. Another timeline is a failover: the
        counters go on, and what they lost is made up for.
        """
        if self.server is None or self.server.system == server.system:
            if self.server is None or self.server.timeline == server.timeline:
                return replace(self, server=server)
            return replace(
                self,
                server=server,
                finished=None if self.finished is None else replace(self.finished, rebase=True),
                enqueued=None if self.enqueued is None else replace(self.enqueued, rebase=True),
                rows=None if self.rows is None else RowCounters(totals=self.rows.totals),
            )
        return EventState(server=server)


def read_slice(rows: Sequence[Row], labels: Labels, *, outcome: bool) -> Slice:
    """The rows of an event SELECT, by part; the last row carries where the read was cut."""
    parts: list[dict[Key, Vector]] = [{}, {}, {}]
    upper = None
    for row in rows:
        if row["part"] is None:
            upper = None if row["upper"] is None else int(str(row["upper"]))
            continue
        key = (*labels(row), str(row["outcome"])) if outcome else labels(row)
        numbers = row["numbers"]
        assert isinstance(numbers, list)
        part = parts[int(str(row["part"]))]
        part |= add(part, {key: tuple(numbers)})
    return Slice(parts[0], parts[1], parts[2], upper)


def counted(previous: Counted | None, now: Marks, start: int, read: Slice) -> Counted:
    """A time column's state after a read. What the first one finds was there before: it counts
    for nothing."""
    before = previous or Counted(Slices(now.safe, now.safe))
    slices = before.slices.advanced(now, start, read)
    if previous is None:
        found = summed((slices.base, slices.mid, read.tail))
        before = replace(before, offset=negated(found))
    known = summed((before.offset, slices.base, slices.mid, read.tail))
    offset, rebase = before.offset, before.rebase
    if rebase and not slices.behind:
        lost = missing(before.published, known)
        offset, known, rebase = add(offset, lost), add(known, lost), False
    return Counted(slices, highest(before.published, known), offset, rebase)


def negated(totals: Totals) -> Totals:
    """Every number with its sign turned."""
    return {key: tuple(-n for n in vector) for key, vector in totals.items()}


def missing(published: Totals, known: Totals) -> Totals:
    """What was published and cannot be found any more."""
    lost = {}
    for key, vector in published.items():
        have = known.get(key, (0,) * len(vector))
        lost[key] = tuple(max(p - k, 0) for p, k in zip(vector, have, strict=True))
    return lost


def begun_attempts(
    previous: Attempts | None,
    finished: Counted,
    tail: Totals,
    live: Totals,
    layout: Layout,
    *,
    rebase: bool,
) -> Attempts:
    """Attempts begun, from finished tasks and the live ones of the same snapshot."""
    slices = finished.slices
    sums: dict[Key, Vector] = {}
    for (*labels, _), vector in summed((slices.base, slices.mid, tail)).items():
        pair = (vector[layout.ATTEMPTS], vector[layout.EXTRA])
        sums = add(sums, {tuple(labels): pair})
    sums = add(sums, live)
    if previous is None:
        return Attempts(baseline=sums, published=dict.fromkeys(sums, (0, 0)))
    if rebase:
        lost = missing(add(previous.published, previous.baseline), sums)
        previous = replace(previous, baseline=add(previous.baseline, negated(lost)))
    begun = add(sums, negated(previous.baseline))
    return replace(previous, published=highest(previous.published, begun))


def with_retries(state: EventState) -> EventState:
    """Retries: attempts beyond the first that took over no expired lease."""
    if state.attempts is None:
        return state
    retries = {
        key: (max(extra - state.reclaims.get(key, (0,))[0], 0),)
        for key, (_, extra) in state.attempts.published.items()
    }
    return replace(state, retries=highest(state.retries, retries))


def with_reclaims(
    state: EventState, after: Mapping[str, Watched], watch: Mapping[str, Watched], now: int
) -> EventState:
    """The reclaims between two looks counted, and the rows to look at next time."""
    reclaims = state.reclaims
    for key in count_reclaims(state.watch, after, now):
        reclaims = add(reclaims, {key: (1,)})
    return replace(state, reclaims=reclaims, watch=watch)


def aged(state: EventState, labels: Iterable[Key], elapsed: float, hold: float) -> EventState:
    """Lets new labels age: they are shown at 0 for ``hold`` seconds before their first value.

    Prometheus's increase() cannot see the events with which a series begins. Only time in which a
    process ran counts, and a label is let go by a state that is saved before its values are seen.
    """
    held = {
        key: state.held[key] + elapsed if key in state.held else 0.0
        for key in labels
        if key not in state.shown
    }
    done = {key for key, age in held.items() if age >= hold}
    return replace(
        state,
        held={key: age for key, age in held.items() if key not in done},
        shown=state.shown | done,
    )


def converted(events: EventState, old: Layout, new: Layout) -> EventState:
    """A state that was counted with other edges: its histograms start at 0, all else stays."""
    if old == new or events.finished is None:
        return events

    def convert(totals: Totals) -> Totals:
        empty = (0,) * (new.size - Layout.PROCESSING)
        return {key: (*vector[: Layout.PROCESSING], *empty) for key, vector in totals.items()}

    counted, slices = events.finished, events.finished.slices
    slices = replace(slices, base=convert(slices.base), mid=convert(slices.mid))
    counted = replace(
        Counted(slices, rebase=counted.rebase),
        published=convert(counted.published),
        offset=convert(counted.offset),
    )
    return replace(events, finished=counted)
