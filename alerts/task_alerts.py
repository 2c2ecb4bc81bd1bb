"""Alerts on tasks: late, stalled, failing, piling up or missing.

A comparison keeps only the labels of its left side, so the left side is always what the message
shows. A missing series makes a comparison silent: a queue without an objective is never late.
"""

from __future__ import annotations

from alerts.model import AS_COUNT, AS_DURATION, AS_SHARE, Alert, looked_up
from alerts.records import (
    CLAIMABLE_AGE,
    LAST_ENQUEUED,
    RECENTLY_FAILED,
    Rates,
    gauge,
    tasks,
)
from alerts.thresholds import Settings, duration, number

_QUEUE = "Queue {{ $labels.queue }} of database {{ $labels.database }}"
_TYPED = "{{ with $labels.task_type }} (task type {{ . }}){{ end }}"


def _late(settings: Settings) -> Alert:
    factor = number(settings.levels.late_objectives)
    objective = looked_up(gauge("objective_seconds"))
    return Alert(
        name="TableQueueTasksLate",
        severity="critical",
        expr=f"{gauge('oldest_ready_age_seconds')} > {factor} * {gauge('objective_seconds')}",
        hold=settings.windows.late_for,
        keep=settings.windows.keep_page,
        summary="Tasks wait far longer than their objective.",
        description=f"{_QUEUE}: the longest-overdue task has been due for {AS_DURATION}; "
        f"its objective is {objective}.",
        value=AS_DURATION,
    )


def _stalled(settings: Settings) -> Alert:
    windows, rates = settings.windows, Rates(settings)
    after = number(windows.stalled_after)
    before = f"{CLAIMABLE_AGE} offset {duration(windows.stalled_after)}"
    drift = number(windows.stalled_after * settings.levels.stalled_drift)
    age = gauge("oldest_processing_age_seconds")
    # In turn: the queue was watched all that time; no attempt ended; where ends are invisible,
    # the oldest task aged as the clock ran, so it is still the same one; and nobody is plausibly
    # busy. Busy is a claim that no reclaim contradicts and that is younger than an hour, or than
    # its lease.
    return Alert(
        name="TableQueueStalled",
        severity="critical",
        expr=f"{CLAIMABLE_AGE} > {after}\n"
        f"  and {before} >= 0\n"
        f"  unless {rates.ended} > 0\n"
        f"  unless (abs({CLAIMABLE_AGE} - {before} - {after}) > {drift} unless {rates.ended})\n"
        f"  unless (\n"
        f"    {tasks('processing')} > 0\n"
        f"      unless {rates.reclaims} > 0\n"
        f"      unless ({age} >= {number(windows.stalled_long_work)}"
        f" unless {age} < {gauge('lease_seconds')})\n"
        f"  )",
        hold=windows.stalled_for,
        keep=windows.keep_page,
        summary="Tasks could be claimed, but no attempt has ended.",
        description=f"{_QUEUE}: a task could have been claimed for {AS_DURATION}, "
        f"and no attempt ended in the last {duration(windows.rates)}.",
        value=AS_DURATION,
    )


def _attempts_failing(settings: Settings) -> Alert:
    levels, rates = settings.levels, Rates(settings)
    done = f'{rates.type_finished}{{outcome="done"}}'
    share = f"{rates.type_failing} / ({rates.type_failing} + ignoring (outcome) {done})"
    return Alert(
        name="TableQueueAttemptsFailing",
        severity="critical",
        expr=f"{share} > {number(levels.failing_share)}\n"
        f"  and {rates.type_failing} >= {number(levels.failing_attempts)}",
        hold=settings.windows.failing_for,
        keep=settings.windows.keep_page,
        summary="Most attempts of a task type fail.",
        description=f"{_QUEUE}{_TYPED}: {AS_SHARE} of the attempts that ended in the last "
        f"{duration(settings.windows.rates)} failed or were given back.",
        value=AS_SHARE,
    )


def _failed(record: str) -> str:
    return f'sum without (outcome) ({record}{{outcome="failed"}})'


def _failed_share(record: str) -> str:
    """Return failed of failed and done; nothing where done tasks are invisible."""
    failed = _failed(record)
    return f'{failed} / ({failed} + ignoring (outcome) {record}{{outcome="done"}})'


def _failures_spike(settings: Settings) -> Alert:
    levels, rates = settings.levels, Rates(settings)
    busy, quiet = rates.finished, rates.finished_quiet
    return Alert(
        name="TableQueueFailuresSpike",
        severity="critical",
        expr=f"(\n"
        f"  {_failed_share(busy)} > {number(levels.spike_share)}\n"
        f"    and {_failed(busy)} >= {number(levels.spike_tasks)}\n"
        f"  or\n"
        f"  {_failed_share(quiet)} > {number(levels.quiet_share)}\n"
        f"    and {_failed(quiet)} >= {number(levels.quiet_tasks)}\n"
        f")\n"
        f"  unless {_failed(quiet)} <= {gauge('failed_tolerated')}",
        hold=settings.windows.spike_for,
        keep=settings.windows.keep_page,
        summary="A large share of finished tasks has failed for good.",
        description=f"{_QUEUE}: {AS_SHARE} of the tasks that finished lately failed for good.",
        value=AS_SHARE,
    )


def _failures(settings: Settings) -> Alert:
    tolerated = gauge("failed_tolerated")
    # The tolerance is a metric only where it is set: elsewhere it is none.
    return Alert(
        name="TableQueueFailures",
        severity="warning",
        expr=f"{RECENTLY_FAILED} > ({tolerated} or {RECENTLY_FAILED} * 0)",
        hold=settings.windows.failures_for,
        summary="More tasks than tolerated have failed for good.",
        description=f"{_QUEUE}: {AS_COUNT} tasks failed for good within the exporter's window.",
        value=AS_COUNT,
    )


def _backlog(settings: Settings) -> Alert:
    windows, rates = settings.windows, Rates(settings)
    ready = tasks("ready")
    # Growing both over the long and over the short run: a batch that was loaded at once and is
    # being worked off is not growing.
    return Alert(
        name="TableQueueBacklogGrowing",
        severity="warning",
        expr=f"{number(windows.rates)} * {ready} / {rates.ended} > {gauge('objective_seconds')}\n"
        f"  and {ready} > {tasks('ready', windows.backlog_compare)}"
        f" + {number(settings.levels.backlog_tasks)}\n"
        f"  and {ready} > {tasks('ready', windows.backlog_trend)}",
        hold=windows.backlog_for,
        summary="The backlog grows and takes longer than the objective to work off.",
        description=f"{_QUEUE}: at the present pace the backlog takes {AS_DURATION}; "
        f"the objective is {looked_up(gauge('objective_seconds'))}.",
        value=AS_DURATION,
    )


def _no_arrivals(settings: Settings) -> Alert:
    limit = gauge("max_silence_seconds")
    return Alert(
        name="TableQueueNoArrivals",
        severity="warning",
        expr=f"time() - {LAST_ENQUEUED} > {limit}",
        hold=settings.windows.silence_for,
        summary="Nothing has been enqueued for longer than it ever should.",
        description=f"{_QUEUE}: the last task was enqueued {AS_DURATION} ago; "
        f"the limit is {looked_up(limit)}.",
        value=AS_DURATION,
    )


def symptom_alerts(settings: Settings) -> list[Alert]:
    """Alerts on tasks that are late or fail."""
    return [
        _late(settings),
        _stalled(settings),
        _attempts_failing(settings),
        _failures_spike(settings),
        _failures(settings),
        _backlog(settings),
        _no_arrivals(settings),
    ]
