"""What the numbers of a finished task's vector mean, and the buckets of a queue's histograms."""

from dataclasses import dataclass

from .config import QueueConfig

OUTCOMES = ("done", "failed", "cancelled")
"""Terminal statuses: the label ``outcome``."""

DEFAULT_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
"""Seconds."""
LEASE_SHARES = (0.8, 1, 4)
"""Edges at these shares of the lease: the alert on a lease that is too short needs the first."""


@dataclass(frozen=True)
class Layout:
    """What the numbers of a finished task's vector mean.

    count, Σ attempts, Σ attempts beyond the first, clamped durations; then for processing and for
    waiting time: observations, Σ microseconds, and observations up to each edge. Edges in
    microseconds.
    """

    processing: tuple[int, ...]
    wait: tuple[int, ...]

    COUNT = 0
    ATTEMPTS = 1
    EXTRA = 2
    CLAMPED = 3
    PROCESSING = 4

    @property
    def waiting(self) -> int:
        """Where the numbers of the waiting time begin."""
        return self.PROCESSING + 2 + len(self.processing)

    @property
    def size(self) -> int:
        """How many numbers a vector has."""
        return self.waiting + 2 + len(self.wait)


def layout_of(config: QueueConfig) -> Layout:
    """The edges of processing and waiting time: the queue's own, or the default series with the
    lease's and the objective's."""
    processing, wait = set(DEFAULT_BUCKETS), set(DEFAULT_BUCKETS)
    if config.buckets is not None:
        processing, wait = set(config.buckets), set(config.buckets)
    if config.lease:
        processing |= {share * config.lease for share in LEASE_SHARES}
    if config.objective:
        wait.add(config.objective)
    return Layout(_microseconds(processing), _microseconds(wait))


def _microseconds(edges: set[float]) -> tuple[int, ...]:
    return tuple(sorted({round(edge * 1_000_000) for edge in edges}))
