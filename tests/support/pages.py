"""A metrics page, parsed by prometheus-client's own parser, and asked by name and labels."""

from collections.abc import Iterator

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text


class Metrics:
    """The samples of one page."""

    def __init__(self, text: str, *, openmetrics: bool = False) -> None:
        self.text = text
        self.samples: dict[str, list[tuple[dict[str, str], float]]] = {}
        self.families: list[str] = []
        families = parse_openmetrics(text) if openmetrics else parse_text(text)  # type: ignore[no-untyped-call]
        for family in families:
            self.families.append(family.name)
            for sample in family.samples:
                self.samples.setdefault(sample.name, []).append((sample.labels, sample.value))

    def all(self, name: str, **labels: str) -> list[tuple[dict[str, str], float]]:
        """Every series of a metric whose labels include these."""
        found = self.samples.get(f"table_queue_{name}", [])
        return [(have, value) for have, value in found if labels.items() <= have.items()]

    def value(self, name: str, **labels: str) -> float | None:
        """The one series' value; None when it is absent."""
        found = self.all(name, **labels)
        assert len(found) <= 1, f"{name}{labels} is not one series: {found}"
        return found[0][1] if found else None

    def by(self, label: str, name: str, **labels: str) -> dict[str, float]:
        """Values by one label."""
        return {have.get(label, ""): value for have, value in self.all(name, **labels)}

    def names(self) -> Iterator[str]:
        """Every sample name of ours."""
        return (name for name in self.samples if name.startswith("table_queue_"))
