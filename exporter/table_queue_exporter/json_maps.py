"""Mappings whose keys are tuples, in JSON: as lists of pairs."""

from collections.abc import Mapping
from typing import Annotated, TypeVar

from pydantic import BeforeValidator, PlainSerializer

V = TypeVar("V")


def _from_pairs(value: object) -> object:
    if not isinstance(value, list):
        return value
    return {tuple(key): item for key, item in value}


def _to_pairs(value: Mapping[tuple[str, ...], object]) -> list[tuple[tuple[str, ...], object]]:
    return list(value.items())


Keyed = Annotated[
    Mapping[tuple[str, ...], V], BeforeValidator(_from_pairs), PlainSerializer(_to_pairs)
]
"""A mapping from tuples of text that survives a journey through JSON."""
