"""Samples → bytes, in Prometheus's text format and in OpenMetrics."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from .metrics import METRICS, SERIES_DROPPED, Metric

LabelValues = tuple[str | None, ...]
"""Values for a family's labels, in their order; None leaves a label off."""


@dataclass(frozen=True)
class Sample:
    """One series and its value."""

    labels: LabelValues
    value: float


@dataclass(frozen=True)
class Histogram:
    """One histogram: observations up to each edge (the same, cumulative), their number and sum.

    ``edges`` and ``total`` in microseconds. ``exemplars`` maps a bucket's index to a task's id and
    its value in microseconds.
    """

    labels: LabelValues
    edges: Sequence[int]
    buckets: Sequence[int]
    count: int
    total: int
    exemplars: Mapping[int, tuple[str, int]] = field(default_factory=dict)


AnySample = Sample | Histogram


def series_of(sample: AnySample) -> int:
    """How many series a sample makes."""
    return 1 if isinstance(sample, Sample) else len(sample.edges) + 3


class Format(Enum):
    """The two formats, by the content type that announces them."""

    TEXT = "text/plain; version=0.0.4; charset=utf-8"
    OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def negotiate(accept: str) -> Format:
    """The format that a scraper likes best, from its Accept header. Text where it does not say."""
    best, best_quality = Format.TEXT, 0.0
    for item in accept.split(","):
        media, *parameters = (part.strip() for part in item.lower().split(";"))
        settings = dict(part.partition("=")[::2] for part in parameters)
        try:
            quality = float(settings.get("q", "1"))
        except ValueError:
            continue
        if media == "application/openmetrics-text":
            wanted = settings.get("version", "1.0.0").strip('"')
            choice = Format.OPENMETRICS if wanted in ("1.0.0", "0.0.1") else None
        else:
            choice = Format.TEXT if media in ("text/plain", "text/*", "*/*") else None
        if choice is not None and quality > best_quality:
            best, best_quality = choice, quality
    return best


def format_value(value: float) -> str:
    """A number as both formats write it; whole numbers without a fraction."""
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if math.isnan(value):
        return "NaN"
    if value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return repr(value)


def render_samples(
    metric: Metric, samples: Iterable[AnySample], *, exemplars: bool = False
) -> bytes:
    """The lines of one family's samples. Only exemplars differ between the formats."""
    lines = []
    for sample in samples:
        pairs = [
            f'{name}="{_escape(value)}"'
            for name, value in zip(metric.labels, sample.labels, strict=True)
            if value is not None
        ]
        if isinstance(sample, Sample):
            lines.append(f"{metric.name}{_braces(pairs)} {format_value(sample.value)}\n")
        else:
            lines += _histogram_lines(metric, pairs, sample, exemplars=exemplars)
    return "".join(lines).encode()


def _braces(pairs: list[str]) -> str:
    return "{" + ",".join(pairs) + "}" if pairs else ""


def _histogram_lines(
    metric: Metric, pairs: list[str], histogram: Histogram, *, exemplars: bool
) -> list[str]:
    lines = []
    edges = [*(repr(edge / 1_000_000) for edge in histogram.edges), "+Inf"]
    counts = [*histogram.buckets, histogram.count]
    for index, (edge, count) in enumerate(zip(edges, counts, strict=True)):
        example = ""
        if exemplars and index in histogram.exemplars:
            task_id, value = histogram.exemplars[index]
            example = f' # {{task_id="{_escape(task_id)}"}} {format_microseconds(value)}'
        labels = _braces([*pairs, f'le="{edge}"'])
        lines.append(f"{metric.name}_bucket{labels} {count}{example}\n")
    labels = _braces(pairs)
    lines.append(f"{metric.name}_sum{labels} {format_microseconds(histogram.total)}\n")
    lines.append(f"{metric.name}_count{labels} {histogram.count}\n")
    return lines


def format_microseconds(value: int) -> str:
    """Microseconds as seconds, to the last digit."""
    seconds, rest = divmod(value, 1_000_000)
    return f"{seconds}.{rest:06d}".rstrip("0").rstrip(".")


def render_head(metric: Metric, form: Format) -> bytes:
    """The HELP and TYPE lines of a family. OpenMetrics names a counter without ``_total``."""
    name = metric.name
    if form is Format.OPENMETRICS and metric.kind == "counter":
        name = name.removesuffix("_total")
    help_text = metric.help.replace("\\", "\\\\").replace("\n", "\\n")
    if form is Format.OPENMETRICS:
        help_text = help_text.replace('"', '\\"')
    return f"# HELP {name} {help_text}\n# TYPE {name} {metric.kind}\n".encode()


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


_BY_WEIGHT = sorted(METRICS, key=lambda metric: ("task_type" in metric.labels, metric.kind))


class Page:
    """The page of all owners (queues, databases, the exporter), kept as bytes.

    Each owner's samples are rendered when they change. A scrape joins bytes that exist already, at
    most once per change; it formats no sample. ``renders`` counts renderings, for whoever checks.
    """

    def __init__(self, max_series: int) -> None:
        self.max_series = max_series
        self._blocks: dict[object, dict[Metric, dict[Format, bytes]]] = {}
        self._series: dict[object, int] = {}
        self._heads = {form: {m: render_head(m, form) for m in METRICS} for form in Format}
        self._joined: dict[Format, bytes] = {}
        self._dropped = 0
        self.renders = 0

    def put(self, owner: object, families: Mapping[Metric, Sequence[AnySample]]) -> None:
        """Renders an owner's samples in place of its earlier ones.

        Families that do not fit under ``max_series`` are left off whole, and counted; the small
        ones, which say how the exporter itself fares, have their place first.
        """
        self.renders += 1
        room = self.max_series - sum(n for o, n in self._series.items() if o != owner)
        blocks: dict[Metric, dict[Format, bytes]] = {}
        series = 0
        for metric in _BY_WEIGHT:
            samples = families.get(metric, ())
            number = sum(series_of(sample) for sample in samples)
            if series + number > room:
                self._dropped += number
            elif samples:
                blocks[metric] = _rendered(metric, samples)
                series += number
        self._blocks[owner] = blocks
        self._series[owner] = series
        self._joined.clear()

    def remove(self, owner: object) -> None:
        """Takes an owner's samples off the page."""
        self._blocks.pop(owner, None)
        self._series.pop(owner, None)
        self._joined.clear()

    def body(self, form: Format) -> bytes:
        """The families of all owners, without OpenMetrics's end mark."""
        if form not in self._joined:
            self._joined[form] = self._join(form)
        return self._joined[form]

    def _join(self, form: Format) -> bytes:
        parts: list[bytes] = []
        for metric in METRICS:
            blocks = [b[metric][form] for b in self._blocks.values() if metric in b]
            if metric is SERIES_DROPPED:
                blocks = [render_samples(metric, [Sample((), self._dropped)])]
            if blocks:
                parts += [self._heads[form][metric], *blocks]
        return b"".join(parts)


def _rendered(metric: Metric, samples: Sequence[AnySample]) -> dict[Format, bytes]:
    text = render_samples(metric, samples)
    if not any(isinstance(sample, Histogram) and sample.exemplars for sample in samples):
        return {Format.TEXT: text, Format.OPENMETRICS: text}
    return {
        Format.TEXT: text,
        Format.OPENMETRICS: render_samples(metric, samples, exemplars=True),
    }
