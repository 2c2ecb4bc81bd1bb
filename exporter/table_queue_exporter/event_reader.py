"""Counts one queue's events at each poll: which SELECTs to send, and what state they lead to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from .access import Select
from .event_layout import Layout
from .event_statements import CHUNK_ROWS, WATCH_ROWS, EventStatements
from .events import (
    EventState,
    aged,
    begun_attempts,
    counted,
    read_slice,
    with_reclaims,
    with_retries,
)
from .horizon import HORIZON, read_horizon
from .labels import LabelSets
from .reading import COUNTED, Row, group_of, waiting_rows
from .reclaims import Watched, read_watched, unclaimed
from .slices import Key, Marks, Totals, add, marks

WATCH_INTERVALS = 2.5
WATCH_SECONDS = 60.0
"""Leases that end within this (or so many intervals) are watched: a restart may take that long."""
MIN_CHUNK_ROWS = 1_000


@dataclass(frozen=True)
class EventPlan:
    """One poll's event SELECTs, and what they were built from."""

    state: EventState
    marks: Marks
    now: int
    selects: tuple[Select, ...]
    starts: Mapping[str, int]


class EventReader:
    """Plans and reads the event part of a queue's polls. Keeps no counts: see EventState."""

    def __init__(
        self,
        statements: EventStatements,
        layout: Layout,
        labels: LabelSets,
        *,
        interval: float,
        hold: float,
        lookback: float | None,
    ) -> None:
        self._statements = statements
        self._layout = layout
        self._labels = labels
        self._watch = max(WATCH_INTERVALS * interval, WATCH_SECONDS)
        self._hold = hold
        self._lookback = None if lookback is None else round(lookback * 1_000_000)
        self._chunk = CHUNK_ROWS
        self.horizon = HORIZON

    @property
    def counts_anything(self) -> bool:
        """Whether the table lets any event be counted."""
        statements = self._statements
        return statements.counts_finished or statements.counts_enqueued or statements.sees_reclaims

    def plan(self, state: EventState, rows: Sequence[Row], *, catch_up: bool) -> EventPlan | None:
        """The SELECTs to send now, from the rows of HORIZON. None where nothing can be counted yet.

        With ``catch_up``, just the slices that are behind.
        """
        horizon, server = read_horizon(rows)
        if horizon.in_recovery and horizon.replayed is None:
            return None
        state = state.on(server)
        now = marks(horizon, state.marks, self._lookback)
        starts, selects = {}, []
        for name, wanted, before, build in (
            (
                "finished",
                self._statements.counts_finished,
                state.finished,
                self._statements.finished,
            ),
            (
                "enqueued",
                self._statements.counts_enqueued,
                state.enqueued,
                self._statements.enqueued,
            ),
        ):
            if wanted and not (catch_up and before is not None and not before.slices.behind):
                starts[name] = now.safe if before is None else before.slices.start(now)
                selects.append(build(starts[name], now, max(self._chunk, MIN_CHUNK_ROWS)))
        if self._statements.sees_reclaims and not catch_up:
            selects.append(self._statements.lease_watch(self._watch))
            if state.watch:
                selects.append(self._statements.lookup(list(state.watch)))
        return EventPlan(state, now, horizon.now, tuple(selects), starts)

    @property
    def needs_patience(self) -> bool:
        """Whether even the smallest chunk ran into the time-out.

        Rows that carry one and the same stamp, as a bulk update leaves them, cannot be split: they
        are read in a message of their own that may take its time.
        """
        return self._chunk < MIN_CHUNK_ROWS

    def timed_out(self) -> None:
        """Reads less at once from now on."""
        self._chunk //= 2

    def succeeded(self) -> None:
        """Reads more at once again."""
        self._chunk = min(max(self._chunk, MIN_CHUNK_ROWS) * 2, CHUNK_ROWS)

    def notes(self, lease: float | None, interval: float) -> dict[str, str]:
        """What cannot be counted of this table, or not surely, and why: for the log."""
        notes = self._statements.absent()
        if self._statements.sees_reclaims and lease is not None and lease < 2 * interval:
            notes["lease_reclaims_total"] = (
                "the lease is shorter than two intervals: reclaims between two polls are missed"
            )
        return notes

    def update(
        self, plan: EventPlan, results: Mapping[str, list[Row]], elapsed: float
    ) -> EventState:
        """The state after a poll. ``elapsed`` in seconds since the poll before."""
        state = replace(plan.state, marks=plan.marks)
        tail: Totals = {}
        rebase = state.finished is not None and state.finished.rebase
        if "finished" in plan.starts:
            read = read_slice(results["finished"], self._key, outcome=True)
            tail = read.tail
            finished = counted(state.finished, plan.marks, plan.starts["finished"], read)
            state = replace(state, finished=finished)
        if "enqueued" in plan.starts:
            read = read_slice(results["enqueued"], self._key, outcome=False)
            enqueued = counted(state.enqueued, plan.marks, plan.starts["enqueued"], read)
            state = replace(state, enqueued=enqueued)
        if "lease_watch" in results:
            watch = self._watched(results["lease_watch"])
            after = {**self._watched(results.get("lookup", [])), **watch}
            if self._statements.lease_is_due:
                watch = dict(list((watch | unclaimed(state.watch, after)).items())[:WATCH_ROWS])
            # The time at which these rows were read, not the horizon's: a task may have been
            # reclaimed between the two, over a lease that had not run out at the first.
            seen = (*results["lease_watch"], *results.get("lookup", []))
            now = max((int(str(row["now"])) for row in seen), default=plan.now)
            state = with_reclaims(state, after, watch, now)
        live = self._live(results)
        if live is not None and state.finished is not None and not state.finished.slices.behind:
            attempts = begun_attempts(
                state.attempts, state.finished, tail, live, self._layout, rebase=rebase
            )
            state = with_retries(replace(state, attempts=attempts))
        return aged(state, self._labels.known(), elapsed, self._hold)

    def exemplars(self, rows: Sequence[Row]) -> dict[tuple[Key, int], tuple[str, int]]:
        """(labels and outcome, bucket) → a task and its microseconds; buckets of the processing
        time first, then those of the waiting time."""
        found = {}
        for row in rows:
            examples = row["examples"]
            if not isinstance(examples, list):
                continue
            key = (*self._key(row), str(row["outcome"]))
            for index, example in enumerate(examples):
                if example is not None:
                    value, _, task_id = str(example).partition(" ")
                    found[key, index] = (task_id, int(value))
        return found

    def _live(self, results: Mapping[str, list[Row]]) -> Totals | None:
        """Sums of attempts over live tasks; None where they cannot be had, or were not all read."""
        if not self._statements.counts_attempts or not COUNTED & results.keys():
            return None
        waiting, in_flight = waiting_rows(results, "counts"), results.get("in_flight", [])
        if any(r["ready_cut"] or r["delayed_cut"] or not r["all_groups"] for r in waiting):
            return None
        if any(row["cut"] for row in in_flight):
            return None
        sums: Totals = {}
        for row in (*waiting, *in_flight):
            pair = (int(str(row["attempts_sum"])), int(str(row["extra_sum"])))
            sums = add(sums, {self._key(row): pair})
        return sums

    def _watched(self, rows: Sequence[Row]) -> dict[str, Watched]:
        return {str(row["id"]): read_watched(row, self._key(row)) for row in rows}

    def _key(self, row: Row) -> Key:
        keys = self._statements.keys
        group = group_of(row, has_queue="queue" in keys, has_type="task_type" in keys)
        queue, task_type = self._labels.label(group)
        return queue, task_type or ""
