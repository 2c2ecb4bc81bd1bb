"""Every number that the rules use, once: times, levels and links.

Times are seconds and live apart from the levels, so that a copy for compressed fault drills can
divide all of them and nothing else.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

MINUTE = 60.0
HOUR = 60 * MINUTE


@dataclass(frozen=True)
class Windows:
    """All times in seconds: windows of rates, `for`, ages, pauses between evaluations.

    A rate window must span at least four scrapes and four polls; the exporter stretches a poll to
    two minutes at most, hence nothing below ten minutes but for gauges that never vanish.
    """

    evaluation: float = 30
    evaluation_slow: float = 2 * MINUTE
    keep_page: float = 5 * MINUTE
    rates: float = 10 * MINUTE
    rates_quiet: float = HOUR

    late_for: float = 5 * MINUTE
    stalled_after: float = 10 * MINUTE
    stalled_long_work: float = HOUR
    stalled_for: float = 2 * MINUTE
    # Longer than the rate window by what a rolling deploy takes: the tasks that it releases come
    # back as retries and stay in the window for its whole length.
    failing_for: float = 15 * MINUTE
    spike_for: float = 2 * MINUTE
    failures_for: float = MINUTE

    returning_compare: float = 15 * MINUTE
    returning_for: float = 5 * MINUTE
    returning_keep: float = 10 * MINUTE
    expired_after: float = 10 * MINUTE
    expired_for: float = 5 * MINUTE
    reclaims: float = 30 * MINUTE
    reclaims_for: float = 15 * MINUTE
    lease_window: float = 6 * HOUR
    lease_for: float = 15 * MINUTE
    poison_for: float = 15 * MINUTE
    storm_for: float = 10 * MINUTE
    backlog_compare: float = 15 * MINUTE
    backlog_trend: float = 5 * MINUTE
    backlog_for: float = 10 * MINUTE
    stuck_for: float = 5 * MINUTE
    silence_for: float = 5 * MINUTE

    horizon_after: float = 30 * MINUTE
    horizon_for: float = 10 * MINUTE
    vacuumed_within: float = HOUR
    bloated_for: float = 30 * MINUTE
    outgrown_window: float = HOUR
    outgrown_for: float = 2 * HOUR

    poll_window: float = 15 * MINUTE
    poll_for: float = 5 * MINUTE
    database_window: float = 2 * MINUTE
    database_for: float = 3 * MINUTE
    exporter_for: float = 5 * MINUTE
    remembered: float = 6 * HOUR
    unwatched_for: float = 15 * MINUTE
    limited_for: float = 30 * MINUTE
    reload_for: float = 5 * MINUTE
    state_window: float = 10 * MINUTE
    # Longer than its window: one failed write that the next one made good is no ticket.
    state_for: float = 15 * MINUTE


@dataclass(frozen=True)
class Levels:
    """Counts, shares and factors. Counts hold within the window that the rule names."""

    late_objectives: float = 5
    stalled_drift: float = 0.1
    # Half would be reached by every recovery: each task then ends one retry and is done once.
    failing_share: float = 0.6
    failing_attempts: float = 10
    spike_share: float = 0.1
    spike_tasks: float = 10
    quiet_share: float = 0.5
    quiet_tasks: float = 5

    returning_growth: float = 1.5
    returning_floor: float = 5
    returning_pace: float = 0.9
    reclaims_tasks: float = 3
    reclaims_share: float = 0.01
    lease_quantile: float = 0.99
    lease_share: float = 0.8
    # Below a hundred samples a single slow task is the 99th percentile.
    lease_samples: float = 100
    poison_attempts: float = 5
    poison_limit_share: float = 0.5
    poison_retrying: float = 10
    poison_retrying_share: float = 0.1
    storm_tasks: float = 20
    storm_share: float = 0.5
    storm_attempts_share: float = 0.2
    backlog_tasks: float = 10

    horizon_transactions: float = 1_000_000
    bloated_rows: float = 10_000
    bloated_share: float = 0.5
    outgrown_rate: float = 500
    poll_share: float = 0.5


@dataclass(frozen=True)
class Links:
    """Where the annotations point; set both to your own before you install the bundle."""

    runbooks: str = "https://runbooks.example.com/table-queue"
    dashboards: str = "https://grafana.example.com"


@dataclass(frozen=True)
class Settings:
    """All that the generator reads."""

    windows: Windows = field(default_factory=Windows)
    levels: Levels = field(default_factory=Levels)
    links: Links = field(default_factory=Links)

    def scaled(self, factor: float) -> Settings:
        """Return a copy in which all time runs `factor` times as fast, and nothing else differs.

        Counts within a window stay: a drill has to bring the traffic up by as much.
        """
        if factor <= 0:
            raise ValueError(f"the scale must be positive, not {factor}")
        times = dataclasses.asdict(self.windows)
        windows = Windows(**{name: seconds / factor for name, seconds in times.items()})
        return dataclasses.replace(self, windows=windows)


def duration(seconds: float) -> str:
    """Write seconds as Prometheus does: `1h30m`, `20s`, `500ms`."""
    rest = round(seconds * 1000)
    if rest <= 0:
        raise ValueError(f"Prometheus has no duration of {seconds} s")
    parts = []
    for unit, size in (("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


def number(value: float) -> str:
    """Write a number as PromQL text, without a needless fraction."""
    return f"{round(value, 6):.6f}".rstrip("0").rstrip(".")
