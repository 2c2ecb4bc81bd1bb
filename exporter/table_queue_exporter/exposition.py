"""Samples → bytes, in Prometheus's text format and in OpenMetrics."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from .metrics import METRICS, SERIES_DROPPED, Metric

LabelValues = tuple[str | None, ...]
"""Values for a family's labels, in their order; None leaves a label off."""


@dataclass(frozen=True)
class Sample:
    """One series and its value."""

    labels: LabelValues
    value: float


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


def render_samples(metric: Metric, samples: Iterable[Sample]) -> bytes:
    """The lines of one family's samples; the same in both formats."""
    lines = []
    for sample in samples:
        pairs = [
            f'{name}="{_escape(value)}"'
            for name, value in zip(metric.labels, sample.labels, strict=True)
            if value is not None
        ]
        labels = "{" + ",".join(pairs) + "}" if pairs else ""
        lines.append(f"{metric.name}{labels} {format_value(sample.value)}\n")
    return "".join(lines).encode()


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


class Page:
    """The page of all owners (queues, databases, the exporter), kept as bytes.

    Each owner's samples are rendered when they change. A scrape joins bytes that exist already, at
    most once per change; it formats no sample. ``renders`` counts renderings, for whoever checks.
    """

    def __init__(self, max_series: int) -> None:
        self._max_series = max_series
        self._blocks: dict[object, dict[Metric, bytes]] = {}
        self._series: dict[object, int] = {}
        self._heads = {form: {m: render_head(m, form) for m in METRICS} for form in Format}
        self._joined: dict[Format, bytes] = {}
        self._dropped = 0
        self.renders = 0

    def put(self, owner: object, families: Mapping[Metric, Sequence[Sample]]) -> None:
        """Renders an owner's samples in place of its earlier ones.

        Families that do not fit under ``max_series`` are left off whole, and counted.
        """
        self.renders += 1
        room = self._max_series - sum(n for o, n in self._series.items() if o != owner)
        blocks, series = {}, 0
        for metric in METRICS:
            samples = families.get(metric, ())
            if series + len(samples) > room:
                self._dropped += len(samples)
            elif samples:
                blocks[metric] = render_samples(metric, samples)
                series += len(samples)
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
            blocks = [b[metric] for b in self._blocks.values() if metric in b]
            if metric is SERIES_DROPPED:
                blocks = [render_samples(metric, [Sample((), self._dropped)])]
            if blocks:
                parts += [self._heads[form][metric], *blocks]
        return b"".join(parts)
