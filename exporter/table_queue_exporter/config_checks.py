"""Checks of a configuration file's plain data that reach beyond one key."""

import difflib
from collections.abc import Iterable
from pathlib import Path

from .errors import Problem
from .model import REQUIRED
from .yaml_source import YamlSource


def fill_empty(data: dict[str, object]) -> None:
    """A key with nothing under it (``main:``, or all of it commented out) holds nothing."""
    for key in ("defaults", "databases", "queues"):
        if key in data and data[key] is None:
            data[key] = [] if key == "queues" else {}
    databases = data.get("databases")
    if isinstance(databases, dict):
        data["databases"] = {name: {} if d is None else d for name, d in databases.items()}


def cross_checks(
    source: YamlSource, data: dict[str, object], *, files: bool = True
) -> list[Problem]:
    """What pydantic cannot see: references between parts, names given twice, files to read."""
    problems = []
    databases, queues = data.get("databases"), data.get("queues")
    names = [str(name) for name in databases] if isinstance(databases, dict) else []
    seen: dict[tuple[object, object], int] = {}
    for index, queue in enumerate(queues if isinstance(queues, list) else []):
        if not isinstance(queue, dict):
            continue
        database, name = queue.get("database"), queue.get("name")
        if isinstance(database, str) and names and database not in names:
            hint = did_you_mean(database, names)
            problems.append(
                source.problem(
                    ("queues", index, "database"), f"there is no database {database!r}{hint}"
                )
            )
        if isinstance(name, str) and (database, name) in seen:
            problems.append(
                source.problem(
                    ("queues", index, "name"),
                    f"{name!r} is already the name of queues[{seen[database, name]}]",
                )
            )
        seen.setdefault((database, name), index)
        for key in REQUIRED:
            if key in queue and queue[key] is None:
                problems.append(
                    source.problem(("queues", index, key), "is required: it cannot be switched off")
                )
            elif key not in queue and queue.get("preset") == "none":
                problems.append(
                    source.problem(("queues", index), f"{key} is required with preset none")
                )
    for name, database in databases.items() if isinstance(databases, dict) else ():
        if not isinstance(database, dict):
            continue
        for key in ("dsn_file", "password_file"):
            value = database.get(key)
            if files and isinstance(value, str) and not _is_file(value):
                # Not shown: somebody may have put the password itself there.
                problems.append(
                    source.problem(("databases", str(name), key), "there is no file of that name")
                )
        problems += [
            source.problem(("databases", str(name), key), f"give either {key} or {key}_file")
            for key in ("dsn", "password")
            if key in database and f"{key}_file" in database
        ]
    return problems


def _is_file(path: str) -> bool:
    try:
        return Path(path).is_file()
    except OSError:  # too long, or in a directory that is closed to us
        return False


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``; did you mean …?`` where something known is close, else nothing."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""
