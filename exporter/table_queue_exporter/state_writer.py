"""Takes over a queue's new event state, after it was saved where states are saved."""

import asyncio
from collections.abc import Callable

import structlog

from .events import EventState
from .state import VERSION, Saved, StateDirectory, StateError
from .store import QueueState

log = structlog.get_logger()


class StateWriter:
    """Saves before anything is published. Without a directory, states live in memory.

    ``changed`` is called when ``errors`` grows. When saving fails, the queue's last saved state
    stays: nothing that was published steps back, and the same events are counted again later.
    """

    def __init__(self, directory: StateDirectory | None, changed: Callable[[], None]) -> None:
        self._directory = directory
        self._changed = changed
        self._failing = False
        self.errors = 0

    def restored(self, state: QueueState) -> QueueState:
        """The queue's state with what an earlier process saved of it."""
        if self._directory is not None:
            saved = self._directory.load(*state.key, state.config.table)
            if saved is not None:
                state.restore(saved.labels, saved.events, saved.layout)
        return state

    async def keep(self, state: QueueState, events: EventState) -> None:
        """Saves a queue's new event state and takes it over; keeps the old one when that fails."""
        if self._directory is not None:
            database, queue = state.key
            saved = Saved(
                VERSION,
                database,
                queue,
                state.config.table,
                state.layout,
                state.labels.saved(),
                events,
            )
            try:
                await asyncio.to_thread(self._directory.save, saved)
            except StateError as error:
                self._failed(error)
                return
            if self._failing:
                self._failing = False
                log.info("states are saved again")
        state.events = events

    def _failed(self, error: StateError) -> None:
        self.errors += 1
        if not self._failing:
            log.error("state not saved; the event counters stand still", error=str(error))
        self._failing = True
        self._changed()
