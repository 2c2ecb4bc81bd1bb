"""Reads what values.yaml says of each value: its place, default, meaning and what it may be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

_DESCRIPTION = "# -- "
_SCHEMA = "# @schema "
_TEXTS_BY_NAME = ("labels", "annotations", "nodeSelector")
_TYPES = {bool: "boolean", int: "integer", str: "string", list: "array", dict: "object"}


@dataclass(frozen=True)
class Value:
    """One value that a user may set. ``path`` is its keys from the top."""

    path: tuple[str, ...]
    default: Any
    description: str
    narrowed: dict[str, Any]

    @property
    def name(self) -> str:
        """As in ``--set``: ``image.tag``."""
        return ".".join(self.path)


def read(text: str) -> list[Value]:
    """Every value of a values.yaml, in its order. Raises ValueError for one without a meaning.

    A mapping with a description is one value, free inside; one without is a section of others.
    """
    lines = text.splitlines()
    root = yaml.compose(text)
    assert isinstance(root, yaml.MappingNode)
    return list(_walk(root, (), yaml.safe_load(text), lines))


def _walk(
    node: yaml.MappingNode, path: tuple[str, ...], data: dict[str, Any], lines: list[str]
) -> Iterator[Value]:
    for key, child in node.value:
        place = (*path, key.value)
        description, narrowed = _comments(lines, key.start_mark.line)
        if description:
            yield Value(place, data[key.value], description, narrowed)
        elif isinstance(child, yaml.MappingNode) and child.value:
            yield from _walk(child, place, data[key.value], lines)
        else:
            raise ValueError(f"{'.'.join(place)} has no '# --' above it")


def _comments(lines: list[str], number: int) -> tuple[str, dict[str, Any]]:
    description, narrowed = "", {}
    while number > 0 and (line := lines[number - 1].strip()).startswith("#"):
        number -= 1
        if line.startswith(_SCHEMA):
            narrowed = json.loads(line.removeprefix(_SCHEMA))
        elif line.startswith(_DESCRIPTION):
            description = line.removeprefix(_DESCRIPTION)
    return description, narrowed


def schema(values: list[Value], alerts: list[str]) -> dict[str, Any]:
    """values.schema.json: every section is closed, so that a misspelt key is refused."""
    root = _section()
    # Helm hands down what a parent chart holds for all its children.
    root["properties"]["global"] = {"type": "object"}
    for value in values:
        section = root
        for key in value.path[:-1]:
            section = section["properties"].setdefault(key, _section())
        section["properties"][value.path[-1]] = _property(value, alerts)
    return {"$schema": "http://json-schema.org/draft-07/schema#", **root}


def _section() -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": {}}


def _property(value: Value, alerts: list[str]) -> dict[str, Any]:
    narrowed = dict(value.narrowed)
    if narrowed.pop("alerts", False):
        change = _section()
        change["properties"] = {
            "enabled": {"type": "boolean"},
            "severity": {"type": "string", "minLength": 1},
            "for": {"type": "string", "pattern": "^([0-9]+(ms|[smhdwy]))+$"},
        }
        narrowed = {"additionalProperties": False, "properties": dict.fromkeys(alerts, change)}
    elif value.path[-1].lower().endswith(tuple(name.lower() for name in _TEXTS_BY_NAME)):
        narrowed["additionalProperties"] = {"type": "string"}
    kind = {} if "enum" in narrowed else {"type": _TYPES[type(value.default)]}
    return {"description": value.description, **kind, **narrowed}


def table(values: list[Value]) -> list[str]:
    """The rows of README.md's table."""
    lines = ["| value | default | meaning |", "| --- | --- | --- |"]
    for value in values:
        default = json.dumps(value.default)
        meaning = value.description.replace("|", "\\|")
        lines.append(f"| `{value.name}` | `{default}` | {meaning} |")
    return lines
