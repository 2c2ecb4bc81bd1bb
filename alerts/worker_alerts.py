"""Alerts on workers, leases and retries."""

from __future__ import annotations

from alerts.model import AS_COUNT, AS_DURATION, QUEUE, TYPE, Alert, looked_up
from alerts.records import (
    ATTEMPTS_MAX,
    RETRYING,
    Rates,
    gauge,
    tasks,
)
from alerts.thresholds import Settings, duration, number

_QUEUE = "Queue {{ $labels.queue }} of database {{ $labels.database }}"
_TYPED = "{{ with $labels.task_type }} (task type {{ . }}){{ end }}"


def _not_returning(settings: Settings) -> Alert:
    levels, windows, rates = settings.levels, settings.windows, Rates(settings)
    ago = windows.returning_compare
    flight = "processing|expired"
    return Alert(
        name="TableQueueWorkersNotReturning",
        severity="warning",
        expr=f"{tasks(flight)}\n"
        f"  > {number(levels.returning_growth)} * {tasks(flight, ago)}"
        f" + {number(levels.returning_floor)}\n"
        f"  and {tasks('ready')} >= {tasks('ready', ago)}\n"
        f"  and {rates.ended} < {number(levels.returning_pace)}"
        f" * ({rates.ended} offset {duration(ago)})",
        hold=windows.returning_for,
        keep=windows.returning_keep,
        summary="Workers take tasks and do not return them.",
        description=f"{_QUEUE}: {AS_COUNT} tasks are in flight, many more than "
        f"{duration(ago)} ago, while fewer attempts end and the backlog does not shrink.",
        value=AS_COUNT,
    )


def _not_reclaimed(settings: Settings) -> Alert:
    windows = settings.windows
    return Alert(
        name="TableQueueLeasesNotReclaimed",
        severity="warning",
        expr=f"{gauge('oldest_expired_age_seconds')} > {number(windows.expired_after)}",
        hold=windows.expired_for,
        summary="Leases have run out and nobody takes the tasks again.",
        description=f"{_QUEUE}: the oldest expired lease ran out {AS_DURATION} ago.",
        value=AS_DURATION,
    )


def _reclaims(settings: Settings) -> Alert:
    levels, windows, rates = settings.levels, settings.windows, Rates(settings)
    share = number(levels.reclaims_share * windows.reclaims / windows.rates)
    # Still going on, so that one crash with a batch in hand stays a single event.
    return Alert(
        name="TableQueueLeaseReclaims",
        severity="warning",
        expr=f"{rates.reclaims} >= {number(levels.reclaims_tasks)}\n"
        f"  and {rates.reclaims_now} > 0\n"
        f"  unless {rates.reclaims} < {share} * {rates.ended}",
        hold=windows.reclaims_for,
        summary="Tasks are taken over from expired leases again and again.",
        description=f"{_QUEUE}: {AS_COUNT} leases were taken over in the last "
        f"{duration(windows.reclaims)}: workers die, or the lease is shorter than the work.",
        value=AS_COUNT,
    )


def _lease_too_short(settings: Settings) -> Alert:
    levels, windows = settings.levels, settings.windows
    window = duration(windows.lease_window)
    lease = gauge("lease_seconds")
    buckets = (
        f"sum by ({TYPE}, le) (max by ({TYPE}, outcome, le)"
        f" (rate(table_queue_processing_seconds_bucket[{window}])))"
    )
    samples = (
        f"sum by ({TYPE}) (max by ({TYPE}, outcome)"
        f" (increase(table_queue_processing_seconds_count[{window}])))"
    )
    return Alert(
        name="TableQueueLeaseTooShort",
        severity="warning",
        expr=f"histogram_quantile({number(levels.lease_quantile)}, {buckets})\n"
        f"  > on ({QUEUE}) group_left () {number(levels.lease_share)} * {lease}\n"
        f"  and {samples} >= {number(levels.lease_samples)}",
        hold=windows.lease_for,
        summary="Processing takes nearly as long as the lease.",
        description=f"{_QUEUE}{_TYPED}: one attempt in a hundred takes {AS_DURATION} or longer; "
        f"the lease is {looked_up(lease)}.",
        value=AS_DURATION,
    )


def _poison(settings: Settings) -> Alert:
    levels = settings.levels
    limit = f"{number(levels.poison_limit_share)} * {gauge('attempts_limit')}"
    waiting = f"{number(levels.poison_retrying_share)} * {tasks('ready|delayed')}"
    return Alert(
        name="TableQueuePoisonTask",
        severity="warning",
        expr=f"{ATTEMPTS_MAX} >= {number(levels.poison_attempts)}\n"
        f"  unless {ATTEMPTS_MAX} < on ({QUEUE}) group_left () {limit}\n"
        f"  unless on ({QUEUE}) {RETRYING} > {number(levels.poison_retrying)} + {waiting}",
        hold=settings.windows.poison_for,
        summary="A task is attempted again and again while the rest do well.",
        description=f"{_QUEUE}{_TYPED}: a live task has been attempted {AS_COUNT} times.",
        value=AS_COUNT,
    )


def _retry_storm(settings: Settings) -> Alert:
    levels, rates = settings.levels, Rates(settings)
    # A busy queue that keeps up has no backlog but its few retries: their share of the attempts
    # tells it from a storm.
    return Alert(
        name="TableQueueRetryStorm",
        severity="warning",
        expr=f"{RETRYING} >= {number(levels.storm_tasks)}\n"
        f"  and {RETRYING} > {number(levels.storm_share)} * {tasks('ready|delayed')}\n"
        f"  unless {rates.retries} < {number(levels.storm_attempts_share)} * {rates.ended}",
        hold=settings.windows.storm_for,
        summary="Most of the backlog is retries.",
        description=f"{_QUEUE}: {AS_COUNT} waiting tasks have failed before.",
        value=AS_COUNT,
    )


def _stuck(settings: Settings) -> Alert:
    limit = gauge("max_runtime_seconds")
    return Alert(
        name="TableQueueTaskStuck",
        severity="warning",
        expr=f"{gauge('oldest_processing_age_seconds')} > {limit}",
        hold=settings.windows.stuck_for,
        summary="An attempt runs longer than it ever should.",
        description=f"{_QUEUE}: an attempt has been running for {AS_DURATION}; "
        f"the limit is {looked_up(limit)}.",
        value=AS_DURATION,
    )


def worker_alerts(settings: Settings) -> list[Alert]:
    """Alerts on workers, leases and retries."""
    return [
        _not_returning(settings),
        _not_reclaimed(settings),
        _reclaims(settings),
        _poison(settings),
        _retry_storm(settings),
        _stuck(settings),
    ]


def slow_alerts(settings: Settings) -> list[Alert]:
    """Alerts whose windows are hours: evaluated less often, for they read many samples."""
    return [_lease_too_short(settings)]
