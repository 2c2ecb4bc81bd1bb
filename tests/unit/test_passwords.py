"""Passwords of every kind, given in every way, wrong and right: none is ever shown.

Each password is LEFT, something nasty, RIGHT. A dsn that is misread spills a part of it into what
is taken for a host, a port or a database: so no part may be seen, whatever the outcome.
"""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
import yaml
from psycopg import sql

from table_queue_exporter.config import parse_config
from table_queue_exporter.demo.server import LocalServer
from table_queue_exporter.errors import ConfigError
from tests.support.processes import ExporterProcess, free_port

NASTY = [
    *"@:/?#%&= '\"\\+$;,[]{}*!|<>`~",
    "ü",
    "🚚",
    "%40",
    "%zz",
    "@/@",
    "/5432/@",
    "?host=",
    " host=",
    "' host='",
    "://",
    "${x}",
    "$$",
]
PASSWORDS = [f"LEFT{i}x{nasty}RIGHT{i}x" for i, nasty in enumerate(NASTY)]
PASSWORDS += [f"5{nasty}RIGHT{i}x" for i, nasty in enumerate("@:/?#&", len(NASTY))]
PASSWORDS += ["*LEFT99x", "!LEFT98x", "!LEFT97x!RIGHT97x", "&LEFT96x RIGHT96x", "@LEFT95x"]
PARTS = re.compile(r"LEFT\d+x|RIGHT\d+x")


def ways(password: str, port: int, directory: Path, name: str) -> Iterator[dict[str, str]]:
    """A database's settings for each way to give a password, right or careless."""
    where = f"127.0.0.1:{port}/app"
    encoded = quote(password, safe="")
    slashed = password.replace("\\", "\\\\").replace("'", "\\'")
    keys = f"host=127.0.0.1 port={port} dbname=app user=u"
    file, dsn_file = directory / f"{name}.password", directory / f"{name}.dsn"
    file.write_text(password + "\n")
    dsn_file.write_text(f"postgresql://u:{encoded}@{where}\n")
    careless = directory / f"{name}.careless"
    careless.write_text(f"postgresql://u:{password}@{where}\n")
    yaml_safe = password.replace("$", "$$")
    yield {"dsn": f"postgresql://u:{encoded}@{where}"}
    yield {"dsn": f"postgresql://u:{yaml_safe}@{where}"}
    yield {"dsn": f"postgresql://u:{yaml_safe}@127.0.0.1:{port}"}
    yield {"dsn": f"postgresql://u@{where}?password={encoded}"}
    yield {"dsn": f"postgresql://u@{where}?password={yaml_safe}"}
    yield {"dsn": f"postgresql://127.0.0.1:{port}?user=u&password={yaml_safe}"}
    yield {"dsn": f"mysql://u:{yaml_safe}@{where}"}
    yield {"dsn": f"u:{yaml_safe}@{where}"}
    yield {"dsn": f"{keys} password='{slashed}'".replace("$", "$$")}
    # Without quotes " host=" is a host, and no password.
    yield {"dsn": f"{keys} password={yaml_safe.replace(' host=', '')}"}
    yield {"dsn": keys, "password": yaml_safe}
    yield {"dsn": keys, "password": f"${{PASSWORD_{name}}}"}
    yield {"dsn": f"postgresql://u:${{PASSWORD_{name}}}@{where}"}
    yield {"dsn": f"postgresql://u:elsewhere@{where}", "password_file": str(file)}
    yield {"dsn_file": str(dsn_file)}
    yield {"dsn_file": str(careless)}


def settings(directory: Path, port: int) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """Every password in every way as one database each, and the environment."""
    databases, environment = {}, {}
    for index, password in enumerate(PASSWORDS):
        environment[f"PASSWORD_p{index}"] = password
        for way, database in enumerate(ways(password, port, directory, f"p{index}")):
            databases[f"p{index}w{way}"] = database
    return databases, environment


def text_of(databases: dict[str, dict[str, str]], interval: str = "15s") -> str:
    queues = [
        {"name": "q", "database": name, "table": "t", "interval": interval} for name in databases
    ]
    return yaml.safe_dump({"databases": databases, "queues": queues}, allow_unicode=True)


def assert_hidden(text: str) -> None:
    shown = PARTS.search(text)
    assert shown is None, text[max(shown.start() - 300, 0) : shown.end() + 100]


def run(*arguments: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "table_queue_exporter", *arguments],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )


def test_no_part_of_a_password_is_shown(tmp_path: Path) -> None:
    databases, environment = settings(tmp_path, free_port())
    file = tmp_path / "all.yaml"
    file.write_text(text_of(databases))
    done = run("check", f"--config.file={file}", environment=environment)
    assert done.returncode == 2
    refused = {line.split(": ")[1].split(".")[1] for line in done.stderr.splitlines()}
    assert len(refused) > 50, "many of the careless ones"
    assert_hidden(done.stdout + done.stderr)
    accepted = {name: given for name, given in databases.items() if name not in refused}
    for index in range(len(PASSWORDS)):
        for way in (0, 3, 8, 10, 11, 13, 14):
            assert f"p{index}w{way}" in accepted, f"{PASSWORDS[index]!r} is written rightly there"

    arguments = ("--log.level=debug", "--log.format=json")
    with ExporterProcess(text_of(accepted), *arguments, environment=environment) as exporter:
        exporter.wait_for(
            lambda page: (
                sum(v for _, v in page.all("poll_errors_total", reason="connection"))
                >= len(accepted)
            ),
            "every database to be tried",
        )
        assert_hidden(exporter.get("/"))
        assert_hidden(exporter.get("/metrics"))
        exporter.config_file.write_text(text_of(databases))
        exporter.process.send_signal(signal.SIGHUP)
        exporter.wait_for(
            lambda page: page.value("exporter_config_last_reload_successful") == 0, "a bad reload"
        )
        exporter.stop()
        log = exporter.log()
        assert log.count("does not answer") >= len(accepted) / 2
        assert_hidden(log)


@pytest.mark.parametrize(
    "password", ["*LEFT1x", "!LEFT1x", "!LEFT1x!RIGHT1x", "%LEFT1x", "{LEFT1x"]
)
def test_broken_yaml_shows_no_password_either(password: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(f"databases:\n  main:\n    password: {password}\n", environment={})
    assert_hidden(str(caught.value))


def test_the_command_line_hides_it_too(tmp_path: Path) -> None:
    for dsn in ("postgresql://u:LEFT1x/RIGHT1x@h/db", "host=h password=LEFT1x RIGHT1x"):
        done = run("serve", f"--database.dsn={dsn}", environment={})
        assert done.returncode == 2
        assert done.stderr.startswith("--database.dsn: ")
        assert_hidden(done.stdout + done.stderr)


@pytest.fixture(scope="module")
def guarded(newest_server: LocalServer) -> str:
    """A database that wants a password: the first word of every line about it in pg_hba.conf."""
    newest_server.create_database("guarded")
    rules = newest_server.data_dir / "pg_hba.conf"
    rules.write_text("host guarded all 127.0.0.1/32 scram-sha-256\n" + rules.read_text())
    with psycopg.connect(newest_server.dsn(), autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS unused ()")
        connection.execute("SELECT pg_reload_conf()")
    return newest_server.dsn("guarded")


def test_a_real_server_refuses_and_accepts(
    newest_server: LocalServer, guarded: str, tmp_path: Path
) -> None:
    databases: dict[str, dict[str, str]] = {}
    expected: dict[str, float] = {}
    with psycopg.connect(newest_server.dsn(), autocommit=True) as connection:
        for index, password in enumerate(PASSWORDS[::2]):
            role = f"watcher{index}"
            connection.execute(
                sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(
                    sql.Identifier(role), sql.Literal(password)
                )
            )
            right = tmp_path / role
            right.write_text(password + "\n")
            where = f"127.0.0.1:{newest_server.port}/guarded"
            encoded = quote(password, safe="")
            given = {
                "file": {"dsn": f"postgresql://{role}@{where}", "password_file": str(right)},
                "uri": {"dsn": f"postgresql://{role}:{encoded}@{where}"},
                "wrong": {"dsn": f"postgresql://{role}:{encoded}x@{where}"},
            }
            # One connection each, and the server has a hundred.
            given.pop("uri" if index % 2 else "file")
            databases |= {f"{role}_{way}": database for way, database in given.items()}
            expected |= {f"{role}_{way}": float(way != "wrong") for way in given}
    with ExporterProcess(text_of(databases, "1s"), "--log.level=debug") as exporter:
        exporter.wait_for(
            lambda page: page.by("database", "database_up") == expected,
            "the right passwords to be taken and the wrong ones not",
        )
        assert_hidden(exporter.get("/"))
        assert_hidden(exporter.get("/metrics"))
        assert "password authentication failed" in exporter.log()
        assert_hidden(exporter.log())


def test_a_password_file_with_a_zero_byte_is_told(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_bytes(b"LEFT1x\0RIGHT1x\n")
    databases = {"main": {"dsn": f"host=127.0.0.1 port={free_port()}", "password_file": str(file)}}
    with ExporterProcess(text_of(databases)) as exporter:
        exporter.wait_for(lambda page: page.all("poll_duration_seconds") or True, "a page")
        exporter.wait_for(
            lambda page: page.value("poll_errors_total", reason="connection"), "the failed poll"
        )
        assert "the password holds a zero byte" in exporter.log()
        assert_hidden(exporter.log())
