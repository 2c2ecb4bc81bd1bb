"""The configuration file, as the person who writes it meets it."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from table_queue_exporter.config import Config, load_config, parse_config
from table_queue_exporter.errors import ConfigError

BASE = """\
databases:
  main:
    dsn: host=db.internal
queues:
  - name: payment
    database: main
    table: public.payment
"""


def problems(text: str, **environment: str) -> list[str]:
    """What is said of a text, one line a problem."""
    with pytest.raises(ConfigError) as caught:
        parse_config(text, "queues.yaml", environment=environment)
    return str(caught.value).splitlines()


def queue(*lines: str) -> str:
    """BASE with further lines in its queue; they begin at line 8."""
    return BASE + "".join(f"    {line}\n" for line in lines)


def test_a_whole_file() -> None:
    config = parse_config(
        """
databases:
  main: {dsn: host=a, password: secret, connect_timeout: 3s}
  other:
defaults:
  interval: 30s
  objective: 5m
queues:
  - name: payment
    database: main
    table: public.payment
    lease: 5m
    objective: 60s
    error: null
  - {name: mail, database: other, table: '"Jobs"."Mail"', preset: none,
     enqueued_at: created, waiting: done IS NULL, objective: null}
""",
        environment={},
    )
    payment, mail = config.queues
    assert payment.interval == mail.interval == 30, "the defaults hold"
    assert payment.objective == 60, "the queue's own word counts"
    assert mail.objective is None, "null takes a default back"
    assert payment.lease == 300
    assert config.databases["main"].connect_timeout == 3
    assert config.databases["other"].dsn.get_secret_value() == "", "libpq's variables apply"
    assert config.queues_of("other") == (mail,)
    model = payment.model()
    assert model.get("error") is None, "null switches a preset's expression off"
    assert model.get("waiting") == "(status = 'NEW')"
    assert model.lease == 300
    model = mail.model()
    assert dict(model.expressions) == {"enqueued_at": "created", "waiting": "done IS NULL"}
    assert model.table.sql == '"Jobs"."Mail"'


def test_what_was_read_cannot_be_changed() -> None:
    config = parse_config(BASE, environment={})
    with pytest.raises(ValidationError):
        config.queues[0].interval = 1.0  # type: ignore[misc]
    with pytest.raises(ValidationError):
        config.max_series = 1  # type: ignore[misc]


def test_every_error_at_once_in_the_files_order() -> None:
    text = """\
databases:
  main:
    dsn: postgresql://u:p@ss@h/db
    conect_timeout: 5s
defaults:
  interval: 15
queues:
  - name: payment
    database: mian
    table: pay ment
    leese: 5m
    waiting: "status = 'NEW'; DROP TABLE payment"
    timezone: Europe/Berln
    preset: leas
    budget: 2
  - database: main
    table: b
    attempts_counted_at: sometimes
    max_task_types: many
max_serie: 5
"""
    said = problems(text)
    places = [": ".join(line.split(": ")[:2]) for line in said]
    assert places == [
        "queues.yaml:3: databases.main.dsn",
        "queues.yaml:4: databases.main.conect_timeout",
        "queues.yaml:6: defaults.interval",
        "queues.yaml:9: queues[0].database",
        "queues.yaml:10: queues[0].table",
        "queues.yaml:11: queues[0].leese",
        "queues.yaml:12: queues[0].waiting",
        "queues.yaml:13: queues[0].timezone",
        "queues.yaml:14: queues[0].preset",
        "queues.yaml:15: queues[0].budget",
        "queues.yaml:16: queues[1].name",
        "queues.yaml:18: queues[1].attempts_counted_at",
        "queues.yaml:19: queues[1].max_task_types",
        "queues.yaml:20: max_serie",
    ]
    for wrong, right in {
        "conect_timeout": "connect_timeout",
        "mian": "main",
        "leese": "lease",
        "preset": "lease",
        "max_serie": "max_series",
    }.items():
        assert any(wrong in line and f"did you mean {right}?" in line for line in said), wrong


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("interval: soon", "'soon' is not a duration: write a number and a unit"),
        ("interval: 15", "15 is not a duration: write a number and a unit, such as 15s"),
        ("interval: 1m1h", "is not a duration"),
        ("interval: null", "is not a duration"),
        ("interval: 5ms", "greater than or equal to 0.01"),
        (f"lease: {'9' * 400}s", "too long"),
        ("lease: 2024-13-45", "is not a valid timestamp; put text into quotes"),
        ("budget: 5%", "should be a valid number"),
        ("budget: 0", "greater than 0"),
        ("count_limit: 5", "greater than or equal to 100"),
        (f"attempts_limit: {'1' * 5000}", "is not a valid int"),
        ("timezone: Mars/Olympus", "is not a time zone: write UTC or Europe/Berlin"),
        ("timezone: ../UTC", "is not a time zone"),
        ('timezone: ""', "is not a time zone"),
        ("preset: sidekiq", "there is no preset 'sidekiq'; known: "),
        ("waiting: (a", "is not one SQL expression: ')' is missing"),
        ("waiting: a -- b", "is not one SQL expression: '--' may not stand there"),
        ('due_at: ""', "is empty: write an SQL expression, or null to switch it off"),
        ("waiting: true", "must be text: put it into quotes"),
        ("waiting: null", "is required: it cannot be switched off"),
        ("enqueued_at:", "is required: it cannot be switched off"),
        ("attempts_counted_at: start", "'claim', 'end' or 'failure'"),
        ("shape: round", "is not a known key"),
    ],
)
def test_one_wrong_value_is_one_line_at_its_place(line: str, message: str) -> None:
    key = line.partition(":")[0]
    (said,) = problems(queue(line))
    assert said.startswith(f"queues.yaml:8: queues[0].{key}: ")
    assert message in said
    assert len(said) < 400


def test_an_error_in_a_default_is_said_once_where_it_stands() -> None:
    more = BASE.partition("queues:\n")[2].replace("payment", "mail")
    text = BASE + more + "defaults:\n  interval: soon\n  timezone: Mars/Olympus\n"
    assert [line.partition(": ")[0] for line in problems(text)] == [
        "queues.yaml:12",
        "queues.yaml:13",
    ]
    (said,) = problems(text.replace("soon", "5s").replace("Mars/Olympus", "UTC\n  name: x"))
    assert said == "queues.yaml:14: defaults.name: is not a known key"


def test_a_wrong_default_does_not_hide_the_same_key_in_a_queue() -> None:
    text = queue("interval: later") + "defaults:\n  interval: soon\n"
    assert len(problems(text)) == 2


def test_a_key_given_twice() -> None:
    (said,) = problems(queue("lease: 5m", "table: public.other"))
    assert said == "queues.yaml:9: queues[0].table: is given twice"


def test_a_name_given_twice() -> None:
    text = BASE + BASE.partition("queues:\n")[2]
    (said,) = problems(text)
    assert said == "queues.yaml:8: queues[1].name: 'payment' is already the name of queues[0]"
    other = text.replace("dsn: host=db.internal", "dsn: host=a\n  two:\n    dsn: host=b")
    other = other[::-1].replace("niam :esabatad", "owt :esabatad", 1)[::-1]
    assert len(parse_config(other, environment={}).queues) == 2, "in two databases it may be"


def test_what_is_required() -> None:
    assert problems("queues: []\n") == ["queues.yaml:1: databases: is required"]
    assert problems("databases: {}\n") == ["queues.yaml:1: databases: must hold at least one"]
    said = problems("databases:\n  main:\nqueues:\n  - lease: 5m\n")
    assert [line.split(": ", 1)[1] for line in said] == [
        f"queues[0].{key}: is required" for key in ("name", "database", "table")
    ]


def test_preset_none_needs_two_expressions() -> None:
    said = problems(queue("preset: none"))
    assert len(said) == 2
    assert all("is required with preset none" in line for line in said)
    assert "enqueued_at" in said[0]
    assert "waiting" in said[1]
    parse_config(queue("preset: none", "waiting: a", "enqueued_at: b"), environment={})


@pytest.mark.parametrize("text", ["", "\n\n", "# all commented out\n", "---\n"])
def test_an_empty_file(text: str) -> None:
    assert problems(text) == ["queues.yaml: is empty: at least databases is required"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("databases:\n  main: {dsn: host=a\n", 3),
        ("databases:\n\tmain:\n", 2),
        ("databases:\n  main:\n    dsn: a: b\n", 3),
        ("a: b\n---\nc: d\n", 2),
        ("databases: \x07\n", 1),
        ("databases:\n  main:\n    dsn: @x\n", 3),
        ("databases:\n  main: *none\n", 2),
    ],
)
def test_broken_yaml_is_told_with_its_line(text: str, line: int) -> None:
    (said,) = problems(text)
    assert said.startswith(f"queues.yaml:{line}: not valid YAML: ")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- a\n- b\n", ["queues.yaml:1: must hold keys: databases, defaults, queues"]),
        ("just text", ["queues.yaml:1: must hold keys: databases, defaults, queues"]),
        (
            "databases: [a]\nqueues: {a: b}\n",
            [
                "queues.yaml:1: databases: must hold keys",
                "queues.yaml:2: queues: must be a list",
            ],
        ),
        (
            "databases:\n  main: host=a\nqueues:\n  - payment\ndefaults: 15s\n",
            [
                "queues.yaml:2: databases.main: must hold keys",
                "queues.yaml:4: queues[0]: must hold keys",
                "queues.yaml:5: defaults: must hold keys",
            ],
        ),
        ("databases: &a\n  main: *a\n", ["queues.yaml:2: databases.main: holds itself"]),
    ],
)
def test_the_wrong_shape(text: str, said: list[str]) -> None:
    assert problems(text) == said


def test_keys_with_nothing_under_them() -> None:
    text = "databases:\n  main:\n    # dsn: host=a\ndefaults:\n  # interval: 5s\nqueues:\n"
    config = parse_config(text, environment={})
    assert list(config.databases) == ["main"]
    assert config.queues == ()


def test_anchors_save_repetition() -> None:
    config = parse_config(
        "databases: {main: {dsn: host=a}}\n"
        "queues:\n"
        "  - &first {name: a, database: main, table: a, lease: 5m}\n"
        "  - &second {<<: *first, name: b}\n"
        "  - {<<: *second, name: c, table: c}\n",
        environment={},
    )
    assert [(q.name, q.table, q.lease) for q in config.queues] == [
        ("a", "a", 300),
        ("b", "a", 300),
        ("c", "c", 300),
    ]


def test_variables_are_filled_in_and_cannot_change_the_structure() -> None:
    text = BASE.replace("host=db.internal", "host=${HOST} user=${USER} application_name=$$x$$$y")
    environment = {"HOST": "db", "USER": "a: b\n  c: [d] # e"}
    dsn = (
        parse_config(text.replace("user=${USER} ", ""), environment=environment)
        .databases["main"]
        .dsn.get_secret_value()
    )
    assert dsn == "host=db application_name=$x$$y"
    config = parse_config(
        queue('task_type: "${USER}"').replace("payment\n", "${USER}\n", 1),
        environment={"USER": environment["USER"].replace("[d] # e", "x")},
    )
    assert config.queues[0].name == "a: b\n  c: x"


def test_variables_that_are_not_set_are_all_told() -> None:
    text = queue("objective: ${OBJECTIVE}", "timezone: ${ZONE}").replace("db.internal", "${HOST}")
    assert problems(text, ZONE="UTC") == [
        "queues.yaml:3: databases.main.dsn: the environment variable HOST is not set",
        "queues.yaml:8: queues[0].objective: the environment variable OBJECTIVE is not set",
    ]


def test_a_brace_after_a_dollar_sign_that_is_no_variable() -> None:
    (said,) = problems(BASE.replace("dsn: ", "password: 'a${b c}'\n    dsn: "))
    assert said.startswith("queues.yaml:3: databases.main.password: ")
    assert "write $$ for a dollar sign" in said
    assert "b c" not in said, "it is a part of a password"


def test_variables_come_from_the_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(BASE.replace("db.internal", "${TEST_HOST}"))
    monkeypatch.setenv("TEST_HOST", "here")
    assert load_config(file).databases["main"].dsn.get_secret_value() == "host=here"


def with_database(*lines: str) -> str:
    return "databases:\n  main:\n" + "".join(f"    {line}\n" for line in lines)


def test_files_that_hold_secrets(tmp_path: Path) -> None:
    password, dsn = tmp_path / "password", tmp_path / "dsn"
    password.write_text("x\n")
    dsn.write_text("host=a\n")
    config = parse_config(
        with_database(f"dsn_file: {dsn}", f"password_file: {password}"), environment={}
    )
    assert config.databases["main"].password_file == password
    assert problems(
        with_database(
            "dsn: host=a", f"dsn_file: {dsn}", "password: x", f"password_file: {password}"
        )
    ) == [
        "queues.yaml:3: databases.main.dsn: give either dsn or dsn_file",
        "queues.yaml:5: databases.main.password: give either password or password_file",
    ]


@pytest.mark.parametrize("value", ["hunter2", "/nowhere/hunter2", "hunter2" * 1000, "/"])
def test_a_file_that_is_not_there(value: str) -> None:
    (said,) = problems(with_database(f"password_file: {value}"))
    assert said.startswith("queues.yaml:3: databases.main.password_file: there is no file")
    assert "hunter2" not in said, "it may be the password, put under the wrong key"


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    def said(path: Path) -> str:
        with pytest.raises(ConfigError) as caught:
            load_config(path)
        return str(caught.value)

    missing = tmp_path / "missing.yaml"
    assert said(missing) == f"{missing}: cannot be read: No such file or directory"
    assert "Is a directory" in said(tmp_path)
    latin = tmp_path / "latin.yaml"
    latin.write_bytes("databases: {m\xe4in: {}}\n".encode("latin-1"))
    assert said(latin) == f"{latin}: cannot be read: is not UTF-8 text"


@pytest.mark.parametrize("name", ["a b", "zahlung-ü", "🚚", "1", "yes", "<script>"])
def test_queues_and_databases_may_have_any_name(name: str) -> None:
    text = BASE.replace("name: payment", f"name: '{name}'").replace("main", f"'{name}'")
    config: Config = parse_config(text, environment={})
    assert config.queues[0].name == config.queues[0].database == name
