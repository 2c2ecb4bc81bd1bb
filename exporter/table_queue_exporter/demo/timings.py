"""The durations and bounds of a queue, in one place."""

from __future__ import annotations

import dataclasses
import json
import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Timings:
    """How long things take and how many there may be. All durations are seconds.

    The defaults suit calls to another service. The lease must be longer than an attempt can take
    (`call_timeout`), with room for a slow database: work that outlasts its lease is done twice.
    """

    lease: float = 300.0
    """How long a claimed task belongs to its worker."""
    poll_interval: float = 5.0
    """Pause of a worker that found nothing to claim."""
    backoff_base: float = 60.0
    """Delay after the first failure; doubles with each further one."""
    backoff_max: float = 64 * 60.0
    """Longest delay, before jitter."""
    max_attempts: int = 8
    """Attempts after which a failing task becomes FAILED."""
    call_timeout: float = 30.0
    """Longest time for one attempt's work."""
    batch_size: int = 10
    """Most tasks that one claim takes."""
    concurrency: int = 10
    """Tasks that one worker process works on at once."""
    shutdown_grace: float = 20.0
    """Time that running tasks get to end at shutdown, before they are released."""

    @classmethod
    def demo(cls) -> Timings:
        """Return short values, so that half a minute shows retries, reclaims and failures."""
        return cls(
            lease=20.0,
            poll_interval=0.5,
            backoff_base=2.0,
            backoff_max=16.0,
            max_attempts=4,
            call_timeout=5.0,
            batch_size=5,
            concurrency=5,
            shutdown_grace=1.0,
        )

    def scaled(self, factor: float) -> Timings:
        """Return the same with all durations multiplied; the counts stay."""
        durations = {
            field.name: getattr(self, field.name) * factor
            for field in dataclasses.fields(self)
            if isinstance(field.default, float)
        }
        return dataclasses.replace(self, **durations)

    def backoff(self, attempts: int, chance: random.Random | None = None) -> float:
        """Return the delay in seconds after a task's `attempts`-th attempt has failed.

        It doubles from `backoff_base` up to `backoff_max`; up to half of it is added at random, so
        that tasks which failed together do not all come back in the same second.
        """
        # The exponent is bounded, as a task may be retried by hand for ever.
        delay = min(self.backoff_base * 2.0 ** min(attempts - 1, 60), self.backoff_max)
        return delay * (1 + (chance or random.Random()).uniform(0, 0.5))

    def to_json(self) -> str:
        """Return a text for `from_json`."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Timings:
        """Return what `to_json` wrote. Raises TypeError for unknown names."""
        return cls(**json.loads(text))
