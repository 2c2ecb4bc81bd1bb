"""The little that has to be known of SQL's text: names, quotes and parentheses."""

import re
import string
from dataclasses import dataclass

from psycopg import sql

_TOKEN = re.compile(
    r"""
      (?P<string>[eE]'(?:[^'\\]|\\[\s\S]|'')*'|'(?:[^']|'')*')
    | (?P<quoted>"(?:[^"]|"")*")
    | (?P<word>[^\W\d][\w$]*)
    | (?P<comment>--|/\*)
    | (?P<dollar>\$(?:[^\W\d]\w*)?\$)
    | (?P<open>[(\[])
    | (?P<close>[)\]])
    | (?P<other>[\s\S])
    """,
    re.VERBOSE,
)
_CLOSES = {"(": ")", "[": "]"}


@dataclass(frozen=True)
class TableName:
    """A table's name as the catalog holds it: unquoted, folded where it was not quoted."""

    schema: str
    name: str

    @property
    def sql(self) -> str:
        """The name as SQL."""
        return f"{quote_name(self.schema)}.{quote_name(self.name)}"

    @property
    def label(self) -> str:
        """The name as people write it: the value of the label ``table``."""
        return f"{self.schema}.{self.name}"


def quote_name(name: str) -> str:
    """A name as an SQL identifier, always quoted."""
    return sql.Identifier(name).as_string()


def quote_literal(text: str) -> str:
    """A text as an SQL string literal, whatever characters it holds."""
    return sql.Literal(text).as_string().strip()


def parse_table(text: str) -> TableName:
    """``public.payment``, ``payment`` (in public) or ``"Jobs"."Payment"``.

    Unquoted parts are folded to lower case, as PostgreSQL does. Raises ValueError.
    """
    part = r'("(?:[^"]|"")+"|[^\W\d][\w$]*)'
    match = re.fullmatch(rf"\s*(?:{part}\s*\.\s*)?{part}\s*", text)
    if match is None:
        raise ValueError(
            f'{text!r} is not a table name: write schema.table, or "Schema"."Table" '
            "where a name has capitals or other characters"
        )
    schema, name = (_unquoted(group) if group else "public" for group in match.groups())
    return TableName(schema, name)


def check_expression(text: str) -> None:
    """Raises ValueError for a text that cannot be one SQL expression and would break others."""
    if not text.strip():
        raise ValueError("is empty: write an SQL expression, or null to switch it off")
    stack: list[str] = []
    for match in _TOKEN.finditer(text):
        kind, token = match.lastgroup, match.group()
        if kind in ("comment", "dollar") or token in ";'\"":
            raise ValueError(f"is not one SQL expression: {token!r} may not stand there")
        if kind == "open":
            stack.append(_CLOSES[token])
        elif kind == "close" and (not stack or stack.pop() != token):
            raise ValueError(f"is not one SQL expression: {token!r} closes nothing")
    if stack:
        raise ValueError(f"is not one SQL expression: {stack[-1]!r} is missing")


def names_in(text: str) -> set[str]:
    """Every name in an expression that may be a column.

    Not a string, a function's name, a type's name (``::text``, ``interval '1 h'``) or a word that
    SQL reserves.
    """
    text = _AT_TIME_ZONE.sub(" + ", text)
    tokens = [m for m in _TOKEN.finditer(text) if not (m.lastgroup == "other" and m[0].isspace())]
    names = set()
    for index, token in enumerate(tokens):
        before = "".join(earlier[0] for earlier in tokens[max(index - 2, 0) : index])
        after = tokens[index + 1] if index + 1 < len(tokens) else None
        is_type = before == "::" or (after is not None and after.lastgroup == "string")
        is_function = after is not None and after[0] == "("
        is_reserved = token.lastgroup == "word" and token[0].lower() in _RESERVED
        if token.lastgroup in ("word", "quoted") and not (is_type or is_function or is_reserved):
            names.add(_unquoted(token[0]))
    return names


_AT_TIME_ZONE = re.compile(r"\bat\s+time\s+zone\b", re.IGNORECASE)
_RESERVED = frozenset(
    re.findall(
        r"\w+",
        "all analyse analyze and any array as asc asymmetric between both case cast collate "
        "column constraint create current_catalog current_date current_role current_schema "
        "current_time current_timestamp current_user default desc distinct do else end except "
        "false fetch for from grant group having ilike in initially intersect into is isnull "
        "lateral leading like limit localtime localtimestamp not notnull null offset on only "
        "or order overlaps primary references returning select session_user similar some "
        "symmetric table then to trailing true union unique user using variadic when where "
        "window with",
    )
)
"""Words that are no column's name unless they are quoted (PostgreSQL's appendix C)."""
_FOLDED = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
"""PostgreSQL folds ASCII only, in every encoding of more than one byte."""


def _unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name.translate(_FOLDED)
