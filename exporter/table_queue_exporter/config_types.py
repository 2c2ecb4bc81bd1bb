"""Types of settings that are written as text: durations and SQL expressions."""

from typing import Annotated

from pydantic import BeforeValidator, Field

from .durations import parse_duration
from .sqltext import check_expression


def _seconds(value: object) -> float:
    if isinstance(value, str):
        return parse_duration(value)
    raise ValueError(f"{value!r} is not a duration: write a number and a unit, such as 15s or 5m")


def _expression(value: object) -> object:
    if isinstance(value, str):
        check_expression(value)
    return value


def _expressions(value: object) -> object:
    """One predicate, or several."""
    parts = value if isinstance(value, list) and value else [value]
    for part in parts:
        if not isinstance(part, str):
            raise ValueError("must be text: put it into quotes")
        check_expression(part)
    return tuple(parts)


Duration = Annotated[float, BeforeValidator(_seconds)]
"""Seconds; written as ``15s``, ``5m``, ``1h30m``."""
Pace = Annotated[Duration, Field(ge=0.01)]
Expression = Annotated[str, BeforeValidator(_expression)]
Expressions = Annotated[tuple[str, ...], BeforeValidator(_expressions)]
