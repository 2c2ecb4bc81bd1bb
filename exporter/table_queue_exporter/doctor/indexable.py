"""Whether an index may hold an expression: PostgreSQL takes immutable ones only.

Careful rather than clever: what is not known to be immutable is passed over, so that no statement
is printed that the server would refuse.
"""

import re
from collections.abc import Collection

from ..sqltext import names_in, quote_name

_STRING = re.compile(r"[eE]?'(?:[^']|'')*'")
_FUNCTION = re.compile(r"([a-z_][a-z0-9_]*)\s*\(", re.IGNORECASE)
_GRAMMAR = frozenset(
    ("coalesce", "nullif", "greatest", "least", "and", "or", "not", "in", "is", "any", "all")
)
"""What may stand before a parenthesis and is no function; none of these is unstable."""
_CAST = re.compile(r"(?<!\x00)::")
_ARITHMETIC = re.compile(r"[+*/%~]|-(?!>)")
_UNSTABLE = re.compile(
    r"\b(current_\w+|local\w+|session_user|user|at\s+time\s+zone|interval|date|time\w*|extract)\b",
    re.IGNORECASE,
)


def is_column(text: str, columns: Collection[str]) -> bool:
    """Whether an expression is nothing but a column."""
    names, bare = names_in(text), text.strip()
    return any(
        name in columns and (bare == quote_name(name) or bare.lower() == name) for name in names
    )


def functions_in(text: str) -> set[str]:
    """The functions that an expression calls; what SQL's grammar itself offers left out."""
    found = {name.lower() for name in _FUNCTION.findall(_STRING.sub("\x00", text))}
    return found - _GRAMMAR


def is_indexable(text: str, columns: Collection[str], immutable: Collection[str]) -> bool:
    """Whether an expression is known to be immutable."""
    if is_column(text, columns):
        return True
    bare = _STRING.sub("\x00", text)
    return (
        functions_in(text) <= set(immutable)
        and not _CAST.search(bare)
        and not _ARITHMETIC.search(bare)
        and not _UNSTABLE.search(bare)
        and names_in(text) <= set(columns)
    )
