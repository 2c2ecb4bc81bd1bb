"""The little that has to be known of SQL's text: names, quotes and parentheses."""

import re
from dataclasses import dataclass

from psycopg import sql

_TOKEN = re.compile(
    r"""
      (?P<string>[eE]?'(?:[^']|'')*')
    | (?P<quoted>"(?:[^"]|"")*")
    | (?P<word>[^\W\d][\w$]*)
    | (?P<comment>--|/\*)
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
        if kind == "comment" or token in ";'\"":
            raise ValueError(f"is not one SQL expression: {token!r} may not stand there")
        if kind == "open":
            stack.append(_CLOSES[token])
        elif kind == "close" and (not stack or stack.pop() != token):
            raise ValueError(f"is not one SQL expression: {token!r} closes nothing")
    if stack:
        raise ValueError(f"is not one SQL expression: {stack[-1]!r} is missing")


def names_in(text: str) -> set[str]:
    """Every name in an expression that may be a column: not a string, not a function's name."""
    tokens = [m for m in _TOKEN.finditer(text) if not (m.lastgroup == "other" and m[0].isspace())]
    names = set()
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        if token.lastgroup in ("word", "quoted") and (following is None or following[0] != "("):
            names.add(_unquoted(token[0]))
    return names


def _unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name.lower()
