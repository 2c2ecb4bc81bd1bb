"""docs/presets.md: what each preset can and cannot show, and which index serves what."""

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import yaml

from table_queue_exporter.access import Access
from table_queue_exporter.model import Preset, load_preset, preset_names

ACCESSES = Path(__file__).parent / "preset_accesses.yaml"
"""Preset → access → indexes, as the planner of PostgreSQL 18 answers on the library's own tables.
`make generate-presets` writes it, and a test compares it."""

_EVERYTHING = frozenset(access.name.lower() for access in Access)
_INTRODUCTION = """
A preset says what one queue library's table means; any of its expressions can be overridden
([configuration](configuration.md)). Below stands, for each, what was read on the library's own
tables with no index but its own: an index of yours that serves more is found and used
([indexes](indexes.md)). Where a preset has no label `task_type`, or leaves a metric out, it is
because the library's indexes, columns or rows do not give it; the reason stands beside it.

`jobs` in several tables need the privilege to read each; `table-queue-exporter sql` prints them.
""".strip()


def presets_page(notice: str) -> str:
    """The whole page."""
    accesses = cast(dict[str, dict[str, list[str]]], yaml.safe_load(ACCESSES.read_text("utf-8")))
    lines = ["# Presets", "", notice, "", *_INTRODUCTION.splitlines(), ""]
    for name in preset_names():
        if name != "none":
            lines += _section(load_preset(name), accesses.get(name))
    return "\n".join(lines).rstrip() + "\n"


def _section(preset: Preset, served: dict[str, list[str]] | None) -> Iterator[str]:
    yield f"## {preset.title} (`{preset.name}`)"
    yield ""
    yield f"Checked: {preset.checked}. Tables: {_tables(preset)}. Labels: {_labels(preset)}."
    yield ""
    accesses = _EVERYTHING if served is None else frozenset(served)
    yield "| metric | shown |"
    yield "| --- | --- |"
    for metric, shown in _metrics(preset, accesses):
        yield f"| `{metric}` | {shown} |"
    yield ""
    if served is not None:
        yield "| what is read | by the index |"
        yield "| --- | --- |"
        for access in Access:
            if access is not Access.TASK_BY_ID:
                yield from _access_row(preset, access, served)
        yield ""
    for note in preset.notes:
        yield f"- {note}"
    if preset.notes:
        yield ""


def _tables(preset: Preset) -> str:
    columns = ", ".join(f"`{column}`" for column in sorted(preset.detect))
    named = f"named `{preset.named}` " if preset.named else ""
    return f"{named}with the columns {columns}"


def _labels(preset: Preset) -> str:
    labels = [
        f"`{key}` from `{preset.expressions[key]}`"
        for key in ("queue", "task_type")
        if key in preset.expressions
    ]
    return ", ".join(labels) or "none of its own"


def _access_row(preset: Preset, access: Access, served: dict[str, list[str]]) -> Iterator[str]:
    key = access.name.lower()
    if key not in served:
        return
    indexes = ", ".join(f"`{name}`" for name in served[key])
    why = f"; {preset.bounded[key]}" if key in preset.bounded else ""
    yield f"| {access.value} | {indexes}{why} |"


def _metrics(preset: Preset, accesses: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Each metric, and whether it is shown, bounded or absent, and why."""
    has = preset.expressions.keys()
    waiting = preset.expressions["waiting"]
    arms = 1 if isinstance(waiting, str) else len(waiting)
    statuses = [
        *("ready", *(["delayed"] if "due_at" in has else [])),
        *(["blocked"] if "blocked" in has else []),
        *(["processing"] if "processing" in has else []),
        *(["expired"] if _expires(preset) else []),
    ]
    counted = ", ".join(f"`{status}`" for status in statuses)
    examined = "processing" in has and not {"processing", "processing_by_lease"} & accesses
    looked = (
        "; claimed ones exact while the table holds 100,000 rows at most, as no index finds them"
    )
    yield "tasks", f"{counted}{looked if examined else ''}"
    yield "oldest_ready_age_seconds", _ready_age(accesses, arms)
    yield "oldest_task_age_seconds", _task_age(accesses)
    yield from _claimed(preset, examined=examined)
    attempts = "yes" if "attempts" in has else "absent: attempts are not kept"
    yield "retrying_tasks, attempts_max".replace(", ", "`, `"), attempts
    yield from _events(preset, accesses)


def _ready_age(accesses: frozenset[str], arms: int) -> str:
    if {"walk_by_due", "walk_by_age"} & accesses:
        return (
            "exact, however many tasks wait"
            if arms == 1 or _walks_all(accesses)
            else (
                "exact for tasks due at once, however many wait; "
                "for scheduled ones while fewer than 10,000 wait"
            )
        )
    if {"waiting_by_age", "waiting_by_due"} & accesses:
        return "of the tasks met among the 10,000 oldest; absent for queues beyond them"
    return "exact while 10,000 tasks wait at most, else absent"


def _walks_all(accesses: frozenset[str]) -> bool:
    return "walk_by_due" in accesses


def _task_age(accesses: frozenset[str]) -> str:
    if "walk_by_age" in accesses:
        return "exact, however many tasks wait"
    if "walk_by_due" in accesses:
        return "exact while 1,000 tasks of a queue wait at most, else absent"
    if "waiting_by_age" in accesses:
        return "of the tasks met among the 10,000 oldest"
    return "exact while 10,000 tasks wait at most, else absent"


def _claimed(preset: Preset, *, examined: bool) -> Iterator[tuple[str, str]]:
    bound = "yes, while the table holds 100,000 rows at most" if examined else "yes"
    for metric, column in (
        ("oldest_processing_age_seconds", "started_at"),
        ("oldest_expired_age_seconds", "lease_until"),
    ):
        known = {"processing", column} <= preset.expressions.keys() and metric not in preset.absent
        lacking = "no start is kept" if column == "started_at" else "there is no lease"
        yield metric, bound if known else f"absent: {preset.absent.get(metric, lacking)}"


def _expires(preset: Preset) -> bool:
    """Whether a lease can be seen to have run out."""
    known = {"processing", "lease_until"} <= preset.expressions.keys()
    return known and "oldest_expired_age_seconds" not in preset.absent


def _events(preset: Preset, accesses: frozenset[str]) -> Iterator[tuple[str, str]]:
    has = preset.expressions.keys()
    absent = {**preset.unserved, **preset.absent}
    finished = {"finished_by_time", "finished_by_outcome"} & accesses and "finished_at" in has
    outcomes = ", ".join(f"`{o}`" for o in ("done", "failed", "cancelled") if o in has)
    by_claim = preset.attempts_counted_at == "claim"
    claimed = {"processing", "processing_by_lease"} & accesses and "lease_until" in has
    times = {
        "processing_seconds": {"started_at"},
        "wait_seconds": {"started_at", "enqueued_at"},
    }
    shown = {
        "recently_failed_tasks": "failed_by_finish" in accesses,
        "last_enqueued_timestamp_seconds": "newest_enqueued" in accesses,
        "last_finished_timestamp_seconds": "newest_finished" in accesses,
        "enqueued_total": "enqueued_by_time" in accesses,
        "finished_total": bool(finished),
        **{metric: bool(finished) and columns <= has for metric, columns in times.items()},
        "attempts_total": bool(finished) and by_claim and "attempts" in has,
        "retries_total": bool(finished) and by_claim and "attempts" in has,
        "lease_reclaims_total": bool(claimed) and by_claim,
    }
    reasons = {
        "processing_seconds": absent.get("finished_total", "no start is kept"),
        "wait_seconds": absent.get("finished_total", "no start is kept"),
        "attempts_total": absent.get("finished_total", "attempts do not grow at the claim"),
        "last_finished_timestamp_seconds": absent.get(
            "finished_total", "no index on the finish time of each queue"
        ),
        "lease_reclaims_total": "claimed tasks stand in no index",
    }
    reasons["retries_total"] = absent.get("attempts_total", reasons["attempts_total"])
    for metric, is_shown in shown.items():
        reason = absent.get(metric) or reasons.get(metric, "no index serves it")
        if is_shown and metric not in preset.absent:
            yield metric, f"yes: {outcomes}" if metric == "finished_total" else "yes"
        else:
            yield metric, f"absent: {reason}"


def dump(accesses: dict[str, dict[str, list[str]]]) -> str:
    """The text of ACCESSES."""
    head = "# Written by `make generate-presets` on PostgreSQL 18; tests compare it.\n"
    return head + yaml.safe_dump(accesses, sort_keys=True, width=100)
