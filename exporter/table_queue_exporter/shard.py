"""Which databases one of several exporters reads: ``--shard=i/n``.

A database belongs to one shard, by its name alone, so that one connection per database stays true
however many exporters run. Each shard draws a lot for each database and the highest wins
(rendezvous hashing): from n to n + 1 shards, only what the new one takes over moves.
"""

import hashlib
import re
from dataclasses import dataclass

from .config import Config

_FORM = re.compile(r"(?:(?P<pod>.+-))?(?P<index>\d{1,9})/(?P<count>\d{1,9})", re.ASCII)
_HELP = (
    "write i/n with i from 0 to n - 1, such as 0/3, "
    "or the name of a StatefulSet's pod for i, such as exporter-4/3"
)


@dataclass(frozen=True)
class Shard:
    """One of ``count`` shards, counted from 0."""

    index: int
    count: int

    def reads(self, database: str) -> bool:
        """Whether this is the shard that the database belongs to."""
        return self.index == max(range(self.count), key=lambda shard: _lot(shard, database))

    def part_of(self, config: Config) -> Config:
        """The configuration with this shard's databases and their queues only; maybe none."""
        databases = {name: c for name, c in config.databases.items() if self.reads(name)}
        queues = tuple(queue for queue in config.queues if queue.database in databases)
        return config.model_copy(update={"databases": databases, "queues": queues})


def parse_shard(text: str) -> Shard:
    """``2/3``, or ``exporter-5/3``: a StatefulSet's pod 5 is the second replica of shard 2.

    Raises ValueError.
    """
    found = _FORM.fullmatch(text)
    if found is None or int(found["count"]) == 0:
        raise ValueError(f"{text!r} is not a shard: {_HELP}")
    index, count = int(found["index"]), int(found["count"])
    if found["pod"] is not None:
        index %= count
    elif index >= count:
        raise ValueError(f"there is no shard {index} of {count}: {_HELP}")
    return Shard(index, count)


def _lot(shard: int, database: str) -> bytes:
    return hashlib.sha256(f"{shard}\0{database}".encode()).digest()
