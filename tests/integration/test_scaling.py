"""Several exporters for many databases, and configurations that change under them."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from table_queue_exporter.demo.server import LocalServer
from table_queue_exporter.shard import Shard
from tests.support.processes import ExporterProcess
from tests.support.queues import REFERENCE_SCHEMA, execute, query

SHARDS = 3
DATABASES = [f"tenant_{number}" for number in range(9)]


@pytest.fixture(scope="module")
def addresses(newest_server: LocalServer) -> dict[str, str]:
    found = {name: newest_server.create_database(name) for name in DATABASES}
    for dsn in found.values():
        execute(dsn, REFERENCE_SCHEMA)
    return found


@pytest.fixture
def config(addresses: dict[str, str]) -> str:
    text = "databases:\n" + "".join(f"  {name}: {{dsn: {d}}}\n" for name, d in addresses.items())
    text += "defaults:\n  interval: 500ms\nqueues:\n" + "".join(
        f"  - {{name: payment, database: {name}, table: public.payment}}\n" for name in addresses
    )
    return text


def test_three_shards_read_nine_databases_each_exactly_once(
    config: str, addresses: dict[str, str]
) -> None:
    """By number, and by the name of a pod; told by the pages and by the server's own list."""
    with ExitStack() as stack:
        shards = [
            stack.enter_context(ExporterProcess(config, f"--shard={form}"))
            for form in ("0/3", "table-queue-exporter-1/3", "table-queue-exporter-5/3")
        ]
        pages = [
            shard.wait_for(
                lambda page: all(value for _, value in page.all("up")) and page.all("up"),
                "every queue of the shard to be read",
            )
            for shard in shards
        ]
        for family in ("up", "database_up", "tasks"):
            read = [{labels["database"] for labels, _ in page.all(family)} for page in pages]
            assert sorted(name for part in read for name in part) == DATABASES, family
            assert all(read), "no shard is idle"
        for index, part in enumerate(read):
            assert part == {name for name in DATABASES if Shard(index, SHARDS).reads(name)}
        sessions = query(
            next(iter(addresses.values())),
            "SELECT datname::text FROM pg_stat_activity"
            " WHERE application_name = 'table-queue-exporter' ORDER BY 1",
        )
        assert [name for (name,) in sessions] == DATABASES


def test_a_shard_without_a_database_stands_by(config: str) -> None:
    """A reload may bring it one."""
    idle = next(
        index for index in range(64) if not any(Shard(index, 64).reads(n) for n in DATABASES)
    )
    with ExporterProcess(config, f"--shard={idle}/64") as exporter:
        assert exporter.status("/-/ready") == 200
        assert exporter.metrics().all("database_up") == []


def test_a_configuration_that_changes_is_read_without_a_signal(
    config: str, addresses: dict[str, str]
) -> None:
    """As a mounted ConfigMap changes: a link is put over another one."""
    with ExporterProcess(config, "--config.auto-reload") as exporter:
        names = exporter.config_file.parent / "..data"
        file = exporter.config_file
        exporter.wait_for(lambda page: len(page.all("up")) == 9, "the first configuration")
        _link(
            file,
            names,
            config.replace(
                "name: payment, database: tenant_0", "name: renamed, database: tenant_0"
            ),
        )
        exporter.wait_for(lambda page: page.all("up", queue="renamed"), "the second one")
        _link(file, names, "databases: {}")
        page = exporter.wait_for(
            lambda page: page.value("exporter_config_last_reload_successful") == 0,
            "the third one to be refused",
        )
        assert len(page.all("up")) == 9, "the last good one stays"


def _link(file: Path, directory: Path, text: str) -> None:
    version = file.with_suffix(f".{len(text)}")
    version.write_text(text)
    link = directory.with_suffix(".new")
    link.symlink_to(version)
    link.rename(file)


def test_the_address_in_a_file_finds_the_queues(addresses: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "dsn"
    file.write_text(addresses["tenant_0"] + "\n")
    with ExporterProcess(None, f"--database.dsn-file={file}") as exporter:
        exporter.wait_for(lambda page: page.value("up", database="tenant_0"), "the queue")
