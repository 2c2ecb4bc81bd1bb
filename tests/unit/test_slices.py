"""Counting by time slices, played through against a table that is just a list.

The play knows everything: when each transaction began, what it stamped, when it committed. The
counting sees what a poll would see: open transactions first, visible rows afterwards.
"""

import random
from dataclasses import dataclass, field, replace

import pytest

from table_queue_exporter.events import Counted, counted
from table_queue_exporter.slices import (
    BLIND_LOOKBACK,
    FOREIGN_LOOKBACK,
    MARGIN,
    MAX_LOOKBACK,
    SECOND,
    YOUNG,
    Horizon,
    Key,
    Marks,
    Server,
    Slice,
    Slices,
    marks,
)

KEY: Key = ("q", "", "done")


@dataclass
class Transaction:
    """One transaction: open from ``begun`` to ``ended``; prepared from ``prepared`` on."""

    begun: int
    ended: int
    prepared: int | None = None
    stamps: list[int] = field(default_factory=list)


@dataclass
class Play:
    """The truth, and what a poll sees of it."""

    transactions: list[Transaction]

    def horizon(self, now: int) -> Horizon:
        """What the earlier statement sees at ``now``."""
        sessions, prepared = {}, set()
        for number, transaction in enumerate(self.transactions):
            if not transaction.begun <= now < transaction.ended:
                continue
            if transaction.prepared is not None and now >= transaction.prepared:
                prepared.add(f"p{number}")
            else:
                sessions[f"s{number}"] = transaction.begun
        return Horizon(now, sessions, frozenset(prepared))

    def read(self, now: int, start: int, at: Marks, bound: int) -> Slice:
        """What the count sees at ``now``: committed rows from ``start`` on, cut at the bound."""
        stamps = sorted(
            stamp
            for transaction in self.transactions
            if transaction.ended <= now
            for stamp in transaction.stamps
            if stamp >= start
        )
        upper = None
        if len(stamps) > bound:
            upper = max(stamps[bound], start + 1)
            stamps = [stamp for stamp in stamps if stamp < upper]
        parts = [0, 0, 0]
        for stamp in stamps:
            parts[0 if stamp < at.safe else 1 if stamp < at.young_safe else 2] += 1
        base, mid, tail = ({KEY: (n,)} if n else {} for n in parts)
        return Slice(base, mid, tail, upper)

    def visible(self, now: int) -> int:
        """Rows that are committed."""
        return sum(len(t.stamps) for t in self.transactions if t.ended <= now)


def random_play(chance: random.Random, length: int) -> Play:
    """Transactions of every temper within ``length`` seconds."""
    transactions = []
    for _ in range(length * 2):
        begun = round(chance.uniform(0, length) * SECOND)
        kind = chance.choices(["short", "late", "long", "prepared"], [80, 12, 3, 5])[0]
        longest = {"short": 0.2, "late": 10, "long": 300, "prepared": 90}[kind]
        ended = begun + round(chance.uniform(0.001, longest) * SECOND)
        prepared = None
        if kind == "prepared":
            prepared = begun + round(chance.uniform(0, 1) * (ended - begun))
        transaction = Transaction(begun, ended, prepared)
        for _ in range(chance.randrange(0, 6)):
            # now() is the transaction's beginning, clock_timestamp() anything up to its end.
            clock = chance.choice([begun, round(chance.uniform(begun, prepared or ended))])
            transaction.stamps.append(clock)
        transactions.append(transaction)
    return Play(transactions)


@pytest.mark.parametrize("seed", range(60))
def test_no_event_is_lost_or_doubled(seed: int) -> None:
    chance = random.Random(seed)
    length = 400
    play = random_play(chance, length)
    bound = chance.choice([10, 100, 10_000])
    interval = chance.choice([0.02, 1.0, 15.0, 40.0])
    # Counting begins before anything happens, and goes on until all have committed.
    now, previous, state = -5 * SECOND, None, None
    published, before = 0, now
    while now < (length + 400) * SECOND:
        at = marks(play.horizon(now), previous)
        seen = now + round(chance.uniform(0, 0.5) * SECOND)  # the count comes a little later
        start = at.safe if state is None else state.slices.start(at)
        state = counted(state, at, start, play.read(seen, start, at, bound))
        previous = at
        count = state.published.get(KEY, (0,))[0]
        assert published <= count <= play.visible(seen), "neither backwards nor ahead"
        if not state.slices.behind:
            assert count >= play.visible(before), "what was there a poll ago is counted"
        published, before = count, now
        if chance.random() < 0.02:
            now += 30 * SECOND  # the exporter was down
        now = seen + round((interval if chance.random() < 0.5 else interval + 0.5) * SECOND)
    for _ in range(2000):  # what is behind is caught up in chunks
        at = marks(play.horizon(now), previous)
        start = state.slices.start(at) if state else at.safe
        state = counted(state, at, start, play.read(now, start, at, bound))
        previous = at
        if not state.slices.behind:
            break
        now += 1000
    assert state is not None
    assert state.published[KEY][0] == play.visible(now)


def test_a_session_that_never_ends_does_not_widen_the_window() -> None:
    """Idle in transaction for an hour: what a poll reads stays a poll's worth."""
    idle = Transaction(0, 2 * 3600 * SECOND)
    work = [
        Transaction(second * SECOND, second * SECOND + 1000, stamps=[second * SECOND])
        for second in range(1, 4200)
    ]
    play = Play([idle, *work])
    previous, state = None, None
    widest = 0
    for minute_quarter in range(4, 16 * 17):
        now = minute_quarter * 15 * SECOND
        at = marks(play.horizon(now), previous)
        start = at.safe if state is None else state.slices.start(at)
        state = counted(state, at, start, play.read(now, start, at, 50_000))
        previous = at
        if now > YOUNG + 30 * SECOND and now < MAX_LOOKBACK:
            widest = max(widest, now - start)
            assert at.exact
    assert 0 < widest <= 15 * SECOND + 2 * MARGIN, widest / SECOND
    assert state is not None
    first_counted = 60 - 1
    assert state.published[KEY][0] >= 4060 - first_counted - 30


def test_past_the_longest_lookback_exactness_is_given_up_and_said() -> None:
    idle = Transaction(0, 10 * 3600 * SECOND)
    now = MAX_LOOKBACK + 100 * SECOND
    at = marks(Play([idle]).horizon(now), None)
    assert not at.exact
    assert at.safe == now - MAX_LOOKBACK
    assert marks(Play([idle]).horizon(MAX_LOOKBACK - 10 * SECOND), None).exact


def test_without_the_privilege_to_see_sessions() -> None:
    horizon = Horizon(1000 * SECOND, {}, frozenset(), sees_sessions=False)
    at = marks(horizon, None)
    assert (at.safe, at.exact) == (1000 * SECOND - BLIND_LOOKBACK, False)


def test_on_a_standby_time_is_what_was_replayed() -> None:
    horizon = Horizon(1000 * SECOND, {}, frozenset(), in_recovery=True, replayed=995 * SECOND)
    at = marks(horizon, None)
    assert (at.safe, at.exact) == (995 * SECOND - FOREIGN_LOOKBACK, False)


def test_a_configured_lookback_widens_the_margin() -> None:
    horizon = Horizon(1000 * SECOND, {}, frozenset())
    assert marks(horizon, None).safe == 1000 * SECOND - MARGIN
    assert marks(horizon, None, 30 * SECOND).safe == 970 * SECOND


def test_a_prepared_transaction_holds_what_it_may_have_stamped() -> None:
    first = marks(Horizon(100 * SECOND, {}, frozenset()), None)
    second = marks(Horizon(110 * SECOND, {}, frozenset({"p"})), first)
    assert second.safe == first.unpinned, "it began after the first poll, nobody knows when"
    third = marks(Horizon(500 * SECOND, {}, frozenset({"p", "new"})), second)
    assert third.pins == {"p": first.unpinned, "new": second.unpinned}
    fourth = marks(Horizon(510 * SECOND, {}, frozenset({"new"})), third)
    assert fourth.safe == second.unpinned


def test_a_failover_goes_on_from_what_was_published() -> None:
    """The new server lacks three of ten events: nothing steps back, and new ones count at once."""
    at = marks(Horizon(100 * SECOND, {}, frozenset()), None)
    state = Counted(Slices(50 * SECOND, 50 * SECOND))
    state = counted(state, at, 50 * SECOND, Slice({}, {}, {KEY: (10,)}, None))
    assert state.published[KEY] == (10,)
    later = marks(Horizon(100 * SECOND, {}, frozenset()), at)
    state = replace(state, rebase=True)
    state = counted(state, later, state.slices.start(later), Slice({}, {}, {KEY: (7,)}, None))
    assert state.published[KEY] == (10,)
    later = marks(Horizon(101 * SECOND, {}, frozenset()), later)
    state = counted(state, later, state.slices.start(later), Slice({}, {}, {KEY: (9,)}, None))
    assert state.published[KEY] == (12,), "two events since"


def test_servers_are_told_apart() -> None:
    assert Server("1", "00000001") != Server("1", "00000002")
