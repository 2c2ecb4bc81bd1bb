"""Names of tables beside a queue's own, and how presets and overrides become a model."""

import pytest

from table_queue_exporter.config import parse_config
from table_queue_exporter.errors import ConfigError
from table_queue_exporter.model import build_model
from table_queue_exporter.related import Names, starred
from table_queue_exporter.sqltext import TableName
from tests.support.queues import configuration

MAIL = TableName("absurd", 'r_My "mail"')


def test_names_are_put_in_quoted_and_in_the_tables_schema() -> None:
    names = Names(MAIL, "r_*")
    sql = names.put_into("SELECT 1 FROM {t_*} t, {table} r, {queues} q")
    assert sql == (
        'SELECT 1 FROM "absurd"."t_My ""mail""" t, "absurd"."r_My ""mail""" r, "absurd"."queues" q'
    )
    assert names.used == (TableName("absurd", 't_My "mail"'), TableName("absurd", "queues"))


def test_braces_in_strings_and_quoted_names_stay() -> None:
    sql = """state = ANY ('{new,old}') AND "{odd}" = '{table}'"""
    assert Names(MAIL, None).put_into(sql) == sql


@pytest.mark.parametrize(
    ("named", "name", "star"),
    [
        ("r_*", "r_mail", "mail"),
        ("*jobs", "chancy_jobs", "chancy_"),
        ("*jobs", "jobs", ""),
        ("a*a", "a", None),
        ("r_*", "t_mail", None),
        ("job", "job", None),
    ],
)
def test_what_a_star_stands_for(named: str, name: str, star: str | None) -> None:
    assert starred(named, name) == star


def test_a_table_of_another_name_than_the_preset_needs_is_said() -> None:
    text = configuration("postgresql:///x", "name: q\ntable: absurd.mail\npreset: absurd")
    with pytest.raises(ConfigError) as said:
        parse_config(text, environment={})
    assert "'mail' does not look like r_*" in str(said.value)
    assert "queues[0]" in str(said.value)


def test_several_predicates_are_one_and_each_by_itself() -> None:
    model = build_model("job", "none", {"enqueued_at": "c", "waiting": ["a = 1", "a = 2 OR b"]})
    assert model["waiting"] == "((a = 1) OR (a = 2 OR b))"
    assert model.waiting_arms == ("(a = 1)", "(a = 2 OR b)")


def test_an_override_of_the_finish_time_replaces_that_of_each_outcome() -> None:
    model = build_model("oban_jobs", "oban", {})
    assert model.finish_of("failed") == "(discarded_at)"
    model = build_model("oban_jobs", "oban", {"finished_at": "ended"})
    assert model.finish_of("failed") == "(ended)"
