"""Names of the tables beside a queue's own, as they stand in an expression: ``{workers}``."""

import re

from .sqltext import TableName

_PLACEHOLDER = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|\{(?P<name>[\w*]+)\}""")


class Names:
    """Puts names of tables into expressions, and remembers which.

    ``{table}`` is the queue's own table. Any other name is a table in the same schema; ``*`` in it
    stands for what ``*`` stands for in the table's own name, which looks like ``named``: where
    ``named`` is ``r_*``, ``{t_*}`` beside the table ``r_mail`` is ``t_mail``.
    """

    def __init__(self, table: TableName, named: str | None) -> None:
        self._table = table
        self._named = named
        self._used: dict[TableName, None] = {}

    @property
    def used(self) -> tuple[TableName, ...]:
        """The tables beside the queue's own that were named so far."""
        return tuple(self._used)

    def put_into(self, sql: str) -> str:
        """The expression with every placeholder replaced. Raises ValueError."""
        return _PLACEHOLDER.sub(self._replaced, sql)

    def _replaced(self, match: re.Match[str]) -> str:
        name = match["name"]
        if name is None:
            return match[0]
        if name == "table":
            return self._table.sql
        other = TableName(
            self._table.schema, name.replace("*", self._star() if "*" in name else "")
        )
        self._used[other] = None
        return other.sql

    def _star(self) -> str:
        star = starred(self._named or "", self._table.name)
        if star is None:
            raise ValueError(
                f"{self._table.name!r} does not look like {self._named}: "
                "the names of the tables beside it are not known"
            )
        return star


def starred(named: str, name: str) -> str | None:
    """What ``*`` stands for in a name that looks like ``named``; None where it does not."""
    before, star, after = named.partition("*")
    fits = name.startswith(before) and name.endswith(after)
    if not star or not fits or len(name) < len(before) + len(after):
        return None
    return name[len(before) : len(name) - len(after)]
