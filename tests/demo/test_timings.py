from __future__ import annotations

import random

import pytest

from table_queue_exporter.demo.timings import Timings


def test_backoff_doubles_up_to_64_minutes_with_up_to_half_added() -> None:
    timings = Timings()
    for attempts, minutes in enumerate((1, 2, 4, 8, 16, 32, 64, 64, 64), start=1):
        delays = [timings.backoff(attempts, random.Random(seed)) / 60 for seed in range(200)]
        assert minutes <= min(delays) < minutes * 1.1
        assert minutes * 1.4 < max(delays) <= minutes * 1.5


def test_backoff_after_very_many_attempts_is_still_a_number() -> None:
    assert Timings().backoff(1_000_000) <= 64 * 60 * 1.5


def test_scaling_changes_durations_and_no_counts() -> None:
    scaled = Timings().scaled(0.1)
    assert scaled.lease == pytest.approx(30)
    assert scaled.backoff_max == pytest.approx(384)
    assert (scaled.max_attempts, scaled.batch_size) == (8, 10)


def test_a_call_ends_before_its_lease() -> None:
    for timings in (Timings(), Timings.demo()):
        assert timings.call_timeout < timings.lease


def test_json_round_trip() -> None:
    assert Timings.from_json(Timings.demo().to_json()) == Timings.demo()
