"""Which shard a database belongs to."""

import pytest

from table_queue_exporter.config import Config, parse_config
from table_queue_exporter.shard import Shard, parse_shard

NAMES = [f"database_{number}" for number in range(300)]


def owners(count: int) -> dict[str, int]:
    shards = [Shard(index, count) for index in range(count)]
    found = {}
    for name in NAMES:
        (owner,) = [shard.index for shard in shards if shard.reads(name)]
        found[name] = owner
    return found


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_each_database_belongs_to_exactly_one_shard_and_none_is_left_idle(count: int) -> None:
    found = list(owners(count).values())
    for index in range(count):
        assert found.count(index) == pytest.approx(len(NAMES) / count, rel=0.4)


def test_one_shard_more_takes_over_its_share_and_moves_nothing_else() -> None:
    before, after = owners(3), owners(4)
    moved = {name for name in NAMES if before[name] != after[name]}
    assert moved == {name for name in NAMES if after[name] == 3}
    assert len(moved) == pytest.approx(len(NAMES) / 4, rel=0.4)


def test_the_choice_is_the_same_in_every_release() -> None:
    """These are facts by now: were they to change, every user's counters would restart."""
    names = ["billing", "orders", "payments", "ledger", "mail", "app"]
    assert [owners_of(name, 3) for name in names] == [0, 0, 0, 2, 0, 1]
    assert [owners_of(name, 2) for name in names] == [0, 0, 0, 0, 0, 1]


def owners_of(name: str, count: int) -> int:
    return next(index for index in range(count) if Shard(index, count).reads(name))


@pytest.mark.parametrize(
    ("text", "shard"),
    [
        ("0/1", Shard(0, 1)),
        ("2/3", Shard(2, 3)),
        ("table-queue-exporter-0/3", Shard(0, 3)),
        ("table-queue-exporter-5/3", Shard(2, 3)),
        ("a-10-4/3", Shard(1, 3)),
    ],
)
def test_is_written_as_a_number_or_as_the_name_of_a_pod(text: str, shard: Shard) -> None:
    assert parse_shard(text) == shard


@pytest.mark.parametrize(
    "text", ["", "3", "3/3", "0/0", "-1/3", "1/-3", "a/3", "pod-/3", "1/3 ", "1/b"]
)
def test_anything_else_is_refused_with_the_form_that_is_meant(text: str) -> None:
    with pytest.raises(ValueError, match="write i/n with i from 0 to n - 1"):
        parse_shard(text)


def test_a_part_holds_its_databases_with_their_queues() -> None:
    names = NAMES[:9]
    text = "databases:\n" + "".join(f"  {name}: {{dsn: host=a}}\n" for name in names)
    text += "queues:\n" + "".join(
        f"  - {{name: q{number}, database: {name}, table: t{number}}}\n"
        for name in names
        for number in range(2)
    )
    config: Config = parse_config(text, environment={})
    parts = [Shard(index, 3).part_of(config) for index in range(3)]
    for part in parts:
        assert [queue for name in part.databases for queue in part.queues_of(name)] == list(
            part.queues
        )
        assert len(part.queues) == 2 * len(part.databases)
    assert sorted(name for part in parts for name in part.databases) == names
