"""Label values: cut to length, capped in number, sticky once seen."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from .reading import Group

LABEL_BYTES = 128
OTHER = "_other"
"""The label under which everything beyond a cap is put together."""


@dataclass(frozen=True)
class SavedLabels:
    """Label sets as a state file keeps them, in the order in which they came."""

    queues: tuple[str, ...] = ()
    queues_limited: bool = False
    types: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    types_limited: frozenset[str] = frozenset()


LabelGroup = tuple[str, str | None]
"""(label ``queue``, label ``task_type`` or None where there is none)."""


def cut_label(value: str) -> str:
    """The value, at most 128 bytes long, cut on a character boundary."""
    encoded = value.encode()
    if len(encoded) <= LABEL_BYTES:
        return value
    return encoded[:LABEL_BYTES].decode(errors="ignore")


class _Capped:
    """Values in the order in which they first came; those beyond the cap are ``_other``."""

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self.values: dict[str, None] = {}
        self.limited = False

    def label(self, value: str) -> str:
        cut = cut_label(value)
        if cut in self.values:
            return cut
        if len(self.values) >= self._cap:
            self.limited = True
            return OTHER
        self.values[cut] = None
        return cut

    def known(self) -> list[str]:
        return list(self.values | ({OTHER: None} if self.limited else {}))


class LabelSets:
    """The known label sets of one configured queue. What was seen once stays."""

    def __init__(self, name: str, max_queues: int, max_task_types: int) -> None:
        self._name = name
        self._max_task_types = max_task_types
        self._queues = _Capped(max_queues)
        self._types: dict[str, _Capped] = {}

    def queue_label(self, value: str | None) -> str:
        """The label ``queue`` for a value of the queue column; the name alone without one."""
        return self._name if value is None else f"{self._name}/{self._queues.label(value)}"

    def label(self, group: Group) -> LabelGroup:
        """The labels of a group; makes them known."""
        queue_value, task_type = group
        queue = self.queue_label(queue_value)
        types = self._types.setdefault(queue, _Capped(self._max_task_types))
        return queue, None if task_type is None else types.label(task_type)

    def queues(self) -> list[str]:
        """Every known label ``queue``; the configured name while no value is known."""
        return [f"{self._name}/{value}" for value in self._queues.known()] or [self._name]

    def task_types(self, queue: str) -> list[str | None]:
        """The known task types of a queue; [None] while there is none, so that empty reads as 0."""
        types = self._types.get(queue)
        return [*types.known()] if types and types.values else [None]

    def known(self) -> list[tuple[str, ...]]:
        """Every known label set (queue, task type), the type empty where there is none."""
        return [
            (queue, task_type or "")
            for queue in self.queues()
            for task_type in self.task_types(queue)
        ]

    def types_limited(self, queue: str) -> bool:
        """Whether the queue has more task types than labels."""
        return queue in self._types and self._types[queue].limited

    @property
    def queues_limited(self) -> bool:
        """Whether the table has more queues than labels."""
        return self._queues.limited

    def saved(self) -> SavedLabels:
        """What a state file keeps."""
        return SavedLabels(
            tuple(self._queues.values),
            self._queues.limited,
            {queue: tuple(types.values) for queue, types in self._types.items()},
            frozenset(queue for queue, types in self._types.items() if types.limited),
        )

    def restore(self, saved: SavedLabels) -> None:
        """Makes known what a state file kept; what was seen once stays."""
        for value in saved.queues:
            self._queues.label(value)
        self._queues.limited |= saved.queues_limited
        for queue, values in saved.types.items():
            types = self._types.setdefault(queue, _Capped(self._max_task_types))
            for value in values:
                types.label(value)
            types.limited |= queue in saved.types_limited
