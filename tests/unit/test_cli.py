"""The command as it is typed."""

import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import structlog
import typer.core
import typer.main

from table_queue_exporter import __version__
from table_queue_exporter.cli import app, main
from tests.support.processes import ExporterProcess, free_port
from tests.support.queues import REFERENCE_SCHEMA

CONFIG = """\
databases:
  main:
    dsn: host=127.0.0.1 port=1
queues:
  - name: payment
    database: main
    table: public.payment
    waiting: status = 'NEW' AND NOT paused
    lease: 5m
"""
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    returncode: int
    stdout: str
    stderr: str


Run = Callable[..., Done]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """The entry point itself, without a new interpreter for each call."""

    def call(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["table-queue-exporter", *arguments])
        monkeypatch.setenv("COLUMNS", "200")
        with pytest.raises(SystemExit) as ended:
            main()
        code = ended.value.code
        assert isinstance(code, int)
        return Done(code, *capsys.readouterr())

    yield call
    # It logs to the captured standard error, which is closed from here on.
    structlog.reset_defaults()


def run_process(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "table_queue_exporter", *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    file = tmp_path / "config.yaml"
    file.write_text(CONFIG)
    return file


def test_version() -> None:
    """Through the script that pip installs, and as a module."""
    script = Path(sys.executable).with_name("table-queue-exporter")
    for command in ([str(script)], [sys.executable, "-m", "table_queue_exporter"]):
        text = subprocess.check_output([*command, "--version"], text=True)
        assert text == f"table-queue-exporter {__version__}\n"


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help(run: Run, command: str) -> None:
    done = run(*command.split(), "--help")
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout.startswith("Usage: ")
    for name in ["serve", "check", "doctor", "discover", "sql"] if not command else []:
        assert f"\n  {name} " in done.stdout
    for flag in options(command) if command else []:
        assert flag.opts[0] in done.stdout


def options(command: str) -> list[typer.core.TyperOption]:
    return [p for p in COMMANDS[command].params if hasattr(p, "envvar")]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_flag_is_explained(command: str) -> None:
    assert COMMANDS[command].help, "what the command does"
    for option in options(command):
        assert option.help, option.opts
        assert option.help.endswith("."), option.opts


def test_every_flag_of_serve_has_its_twin_in_the_environment() -> None:
    flags = {option.opts[0]: option.envvar for option in options("serve")}
    assert len(flags) >= 8
    for flag, variable in flags.items():
        words = re.sub("[.-]", "_", flag.removeprefix("--")).upper()
        assert variable == f"TABLE_QUEUE_EXPORTER_{words}"


def test_the_twins_work(tmp_path: Path) -> None:
    port = free_port()
    with ExporterProcess(
        None,
        environment={
            "TABLE_QUEUE_EXPORTER_DATABASE_DSN": f"host=127.0.0.1 port={port} password=hidden",
            "TABLE_QUEUE_EXPORTER_WEB_LISTEN_ADDRESS": "127.0.0.1:1",
            "TABLE_QUEUE_EXPORTER_WEB_TELEMETRY_PATH": "/numbers",
            "TABLE_QUEUE_EXPORTER_WEB_ENABLE_LIFECYCLE": "true",
            "TABLE_QUEUE_EXPORTER_LOG_LEVEL": "debug",
            "TABLE_QUEUE_EXPORTER_LOG_FORMAT": "json",
        },
    ) as exporter:
        assert exporter.status("/numbers") == 200
        assert exporter.status("/metrics") == 404
        assert exporter.status("/-/reload", "POST") == 200
        assert exporter.log().startswith('{"'), "and a flag beats its twin: it listens"
        assert "warning:" not in exporter.log(), "ps does not show the environment"


def test_nothing_typed_shows_the_help(run: Run) -> None:
    done = run()
    assert done.returncode == 2
    assert "serve" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["serve", "--no-such-flag"], "No such option: --no-such-flag"),
        (["serv"], "No such command 'serv'"),
        (["serve"], "name a file, or a database with --database.dsn"),
        (["sql"], "name a file, or a database with --database.dsn"),
        (["doctor"], "name a file, or a database with --database.dsn"),
        (["doctor", "--database.dsn=host=a", "--format=xml"], "'xml' is not one of"),
        (["discover"], "name the database"),
        (["check"], "name a file"),
        (["check", "--config.file=/nowhere.yaml"], "/nowhere.yaml: cannot be read: No such file"),
        (["serve", "--config.file=/nowhere.yaml"], "/nowhere.yaml: cannot be read: No such file"),
        (["serve", "--log.level=loud"], "'loud' is not one of"),
        *(
            (["serve", "--database.dsn=host=a", f"--web.listen-address={address}"], "host:port")
            for address in ("9947", "a:b", ":99999", ":-1", "")
        ),
        *(
            (["serve", "--database.dsn=host=a", f"--web.telemetry-path={path}"], "cannot be served")
            for path in ("/-/healthy", "/{x", "/a?b")
        ),
        (["serve", "--database.dsn=host=a", "--web.listen-address=::1:9947"], "[host]:port"),
        (["serve", "--database.dsn=postgresql://u:p@ss@h/db"], "percent-encode"),
        (["serve", "--database.dsn=nonsense"], "the dsn cannot be parsed"),
        (["serve", "--database.dsn=hots=a"], "the dsn cannot be parsed"),
    ],
)
def test_bad_usage_is_exit_code_2_and_a_reason(run: Run, arguments: list[str], said: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_check(run: Run, config_file: Path) -> None:
    done = run("check", f"--config.file={config_file}")
    assert (done.returncode, done.stderr) == (0, "")
    assert str(config_file) in done.stdout
    assert "main/payment" in done.stdout
    config_file.write_text(CONFIG.replace("lease: 5m", "lease: 5").replace("table:", "tabel:"))
    done = run("check", f"--config.file={config_file}")
    assert (done.returncode, done.stdout) == (2, "")
    assert [line.partition(": ")[0] for line in done.stderr.splitlines()] == [
        f"{config_file}:5",
        f"{config_file}:7",
        f"{config_file}:9",
    ]


def test_sql_offline_needs_no_server(run: Run, config_file: Path) -> None:
    done = run("sql", "--offline", f"--config.file={config_file}")
    assert (done.returncode, done.stderr) == (0, "")
    grant = re.search(r"^GRANT SELECT \((.*)\) ON (\S+) TO \w+;$", done.stdout, re.MULTILINE)
    assert grant
    assert grant[2] == '"public"."payment"'
    columns = set(grant[1].replace('"', "").split(", "))
    assert {"paused", "status", "task_type", "created_at", "attempts"} <= columns
    readable = re.findall(r"^    (\w+) +(?:bigint|text|int|timestamptz)", REFERENCE_SCHEMA, re.M)
    assert columns <= {"paused", *readable} - {"last_error"}, "no payload, no words of SQL"
    assert done.stdout.count("BEGIN;") == done.stdout.count("COMMIT;") >= 4
    assert "SET LOCAL transaction_read_only = on;" in done.stdout
    assert "(status = 'NEW' AND NOT paused)" in done.stdout
    only = run("sql", "--offline", f"--config.file={config_file}", "--queue=payment")
    assert only.returncode == 0
    wrong = run("sql", "--offline", f"--config.file={config_file}", "--queue=mail")
    assert wrong.returncode == 2
    assert "no queue 'mail'; known: payment" in wrong.stderr


def test_sql_without_its_server_is_exit_code_1(config_file: Path) -> None:
    done = run_process("sql", f"--config.file={config_file}")
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr


def test_a_taken_port_is_exit_code_1_with_advice(config_file: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run_process(
            "serve", f"--config.file={config_file}", f"--web.listen-address={address}"
        )
    assert done.returncode == 1
    assert f"cannot listen on {address}: " in done.stderr
    assert "in use" in done.stderr
    assert "choose another --web.listen-address" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_password_on_the_command_line_is_warned_of() -> None:
    with ExporterProcess(None, "--database.dsn=postgresql://u:hidden@127.0.0.1:1/db") as exporter:
        first = exporter.log().splitlines()[0]
        assert first.startswith("warning: the password in --database.dsn shows in the list of")
        assert "TABLE_QUEUE_EXPORTER_DATABASE_DSN" in first
        assert "hidden" not in exporter.log()
    with ExporterProcess(None, "--database.dsn=postgresql://u@127.0.0.1:1/db") as exporter:
        assert "warning:" not in exporter.log()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_0(number: int) -> None:
    with ExporterProcess(CONFIG) as exporter:
        begun = time.monotonic()
        assert exporter.stop(number) == 0
        assert time.monotonic() - begun < 5, "the promise of the documentation"
        assert "Traceback" not in exporter.log()
        assert exporter.log().splitlines()[-1].endswith("msg=stopping")
