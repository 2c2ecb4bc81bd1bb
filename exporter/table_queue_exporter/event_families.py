"""The event counters and histograms of one queue as samples."""

from . import metrics
from .event_layout import OUTCOMES, Layout
from .exposition import AnySample, Histogram, Sample
from .metrics import Metric
from .slices import Key, Totals, Vector, add
from .store import QueueState

Families = dict[Metric, list[AnySample]]


def event_families(state: QueueState) -> Families:
    """Every event family that the queue has. New labels are shown at 0 for a while."""
    events, families = state.events, Families()
    database = state.config.database
    outcomes = [name for name in OUTCOMES if state.model.get(name)]
    has_start = state.model.get("started_at") is not None
    for key in state.labels.known():
        queue, task_type = key
        labels = (database, queue, task_type or None)
        shown = key not in events.held
        if events.enqueued is not None:
            count = _first(events.enqueued.published, key, shown=shown)
            _put(families, metrics.ENQUEUED, Sample(labels, count))
        if events.attempts is not None:
            count = _first(events.attempts.published, key, shown=shown)
            _put(families, metrics.ATTEMPTS, Sample(labels, count))
            count = _first(events.retries, key, shown=shown)
            _put(families, metrics.RETRIES, Sample(labels, count))
        if state.sees_reclaims:
            count = _first(events.reclaims, key, shown=shown)
            _put(families, metrics.LEASE_RECLAIMS, Sample(labels, count))
        if events.finished is not None:
            vectors = {
                outcome: _vector(events.finished.published, (*key, outcome), state.layout, shown)
                for outcome in outcomes
            }
            for outcome, vector in vectors.items():
                with_outcome = (*labels, outcome)
                _put(families, metrics.FINISHED, Sample(with_outcome, vector[Layout.COUNT]))
                if has_start:
                    examples = _examples(state, [(*key, outcome)], 0)
                    histogram = processing(state.layout, with_outcome, vector, examples)
                    _put(families, metrics.PROCESSING_SECONDS, histogram)
            if has_start:
                total = _total(vectors, state.layout)
                keys = [(*key, outcome) for outcome in outcomes]
                examples = _examples(state, keys, len(state.layout.processing) + 1)
                histogram = waiting(state.layout, labels, total, examples)
                _put(families, metrics.WAIT_SECONDS, histogram)
    if families:
        families[metrics.EVENTS_EXACT] = [
            Sample((database, queue), int(events.marks is not None and events.marks.exact))
            for queue in state.labels.queues()
        ]
    return families


def clamped_events(state: QueueState, queue: str) -> int:
    """Durations of finished tasks that were put to 0 or to the limit."""
    if state.events.finished is None:
        return 0
    published = state.events.finished.published
    return sum(vector[Layout.CLAMPED] for key, vector in published.items() if key[0] == queue)


def processing(
    layout: Layout,
    labels: tuple[str | None, ...],
    vector: Vector,
    exemplars: dict[int, tuple[str, int]],
) -> Histogram:
    """The processing time's part of a vector."""
    start = layout.PROCESSING
    return Histogram(
        labels,
        layout.processing,
        vector[start + 2 : layout.waiting],
        vector[start],
        vector[start + 1],
        exemplars,
    )


def waiting(
    layout: Layout,
    labels: tuple[str | None, ...],
    vector: Vector,
    exemplars: dict[int, tuple[str, int]],
) -> Histogram:
    """The waiting time's part of a vector."""
    start = layout.waiting
    return Histogram(
        labels, layout.wait, vector[start + 2 :], vector[start], vector[start + 1], exemplars
    )


def _put(families: Families, metric: Metric, sample: AnySample) -> None:
    families.setdefault(metric, []).append(sample)


def _first(totals: Totals, key: Key, *, shown: bool) -> int:
    return totals[key][0] if shown and key in totals else 0


def _vector(totals: Totals, key: Key, layout: Layout, shown: bool) -> Vector:
    vector = totals.get(key) if shown else None
    return (0,) * layout.size if vector is None else vector


def _total(vectors: dict[str, Vector], layout: Layout) -> Vector:
    total: Totals = {("",): (0,) * layout.size}
    for vector in vectors.values():
        total = add(total, {("",): vector})
    return total[("",)]


def _examples(state: QueueState, keys: list[Key], start: int) -> dict[int, tuple[str, int]]:
    """Exemplars of the histogram whose buckets begin at ``start``, by bucket."""
    size = len(state.layout.processing if start == 0 else state.layout.wait) + 1
    return {
        index: state.exemplars[key, start + index]
        for key in keys
        for index in range(size)
        if (key, start + index) in state.exemplars
    }
