"""Names, literals and expressions: what we accept means to PostgreSQL what we take it for."""

import psycopg
import pytest

from table_queue_exporter.demo.server import LocalServer
from table_queue_exporter.sqltext import (
    TableName,
    check_expression,
    names_in,
    parse_table,
    quote_literal,
    quote_name,
)
from tests.support.queues import execute, query


@pytest.fixture(scope="module")
def database(newest_server: LocalServer) -> str:
    return newest_server.create_database("sqltext")


@pytest.mark.parametrize(
    ("text", "schema", "name"),
    [
        ("payment", "public", "payment"),
        ("public.payment", "public", "payment"),
        ("Jobs.Payment", "jobs", "payment"),
        ('"Jobs"."Payment"', "Jobs", "Payment"),
        ('jobs."two words"', "jobs", "two words"),
        ('"with ""quotes"""', "public", 'with "quotes"'),
        ('"a.b"."c.d"', "a.b", "c.d"),
        (" public . payment ", "public", "payment"),
        ("ÄRGER_Ü", "public", "Ärger_Ü"),
        ("a$1", "public", "a$1"),
    ],
)
def test_table_names_are_read_as_postgresql_reads_them(
    database: str, text: str, schema: str, name: str
) -> None:
    table = parse_table(text)
    assert table == TableName(schema, name)
    execute(
        database,
        f"CREATE SCHEMA IF NOT EXISTS {quote_name(schema)}",
        f"DROP TABLE IF EXISTS {table.sql}",
        f"CREATE TABLE {text.strip()} (id int)",
    )
    assert query(
        database,
        "SELECT nspname::text, relname::text FROM pg_class c JOIN pg_namespace n "
        f"ON n.oid = relnamespace WHERE c.oid = {quote_literal(table.sql)}::regclass",
    ) == [(schema, name)]


@pytest.mark.parametrize(
    "text", ["", "a b", "a.b.c", "a;b", '"', '""', "1a", "a.", ".a", "a-b", "'a'", "a--b"]
)
def test_what_is_no_table_name_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a table name: write schema"):
        parse_table(text)


@pytest.mark.parametrize(
    "text",
    ["plain", "it's", "back\\slash", "\\'", "üñí 🚚", "$$", "a\nb", " spaces ", "", "%s %(a)s {}"],
)
def test_literals_come_back_unchanged(database: str, text: str) -> None:
    assert query(database, f"SELECT {quote_literal(text)}::text") == [(text,)]


GOOD = [
    "status = 'NEW'",
    "status = 'it''s; -- not (a comment'",
    "payload->>'type'",
    "(data #>> '{a,b}')::timestamptz",
    "coalesce(a, (b))",
    '"Mixed;Case" IS NULL',
    "kinds[1]",
    "status IN ('a', 'b')",
    r"x ~ E'it\'s\\'",
    "a - 1 * 2 / 3 % 4",
    "U&'\\0041'",
]
BAD = [
    "a; DROP TABLE payment",
    "a -- rest",
    "a /* rest",
    "'open",
    '"open',
    "(a",
    "a)",
    "a[1",
    "(a]",
    "a) OR (b",
    "$$ ' $$ ; DROP TABLE payment; --'",
    "$a$ ' $a$ ; DROP TABLE payment; --'",
    r"E'\'' ; DROP TABLE payment; --'",
    r"E'\\' ; DROP TABLE payment; --'",
]


@pytest.mark.parametrize("text", GOOD)
def test_expressions_are_accepted(text: str) -> None:
    check_expression(text)


@pytest.mark.parametrize("text", BAD)
def test_what_would_end_our_statement_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not one SQL expression"):
        check_expression(text)


@pytest.mark.parametrize("text", ["", " ", "\n"])
def test_an_empty_expression_is_told_about_null(text: str) -> None:
    with pytest.raises(ValueError, match="null to switch it off"):
        check_expression(text)


COLUMNS = {
    "status = 'NEW' AND NOT paused": {"status", "paused"},
    "coalesce(due, created) > now() - interval '1 hour'": {"due", "created"},
    "(stamp AT TIME ZONE 'UTC')": {"stamp"},
    "kind::text": {"kind"},
    '"Mixed Case" || lower(plain)': {"Mixed Case", "plain"},
    "CASE WHEN a IS NULL THEN true ELSE b END": {"a", "b"},
    "tags ->> 'a column'": {"tags"},
}


@pytest.mark.parametrize("text", COLUMNS)
def test_the_columns_of_an_expression_can_be_granted(database: str, text: str) -> None:
    """What ``sql --offline`` grants must be columns, or the GRANT fails."""
    assert names_in(text) == COLUMNS[text]
    columns = ", ".join(f"{quote_name(name)} text" for name in COLUMNS[text])
    granted = ", ".join(quote_name(name) for name in sorted(names_in(text)))
    execute(database, "DROP TABLE IF EXISTS t", f"CREATE TABLE t ({columns})")
    execute(database, f"GRANT SELECT ({granted}) ON t TO PUBLIC")
    with pytest.raises(psycopg.errors.UndefinedColumn):
        execute(database, 'GRANT SELECT ("and") ON t TO PUBLIC')
