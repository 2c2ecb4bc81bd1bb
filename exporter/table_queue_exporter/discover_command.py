"""The command ``discover``: a configuration for what stands in a database, commented."""

import yaml
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from .config import Config, DatabaseConfig
from .discovery import Found, find_known, queue_names
from .guesses import Guess, find_guesses, quote_if_needed
from .postgres import Connection, Session
from .sqltext import TableName

_SECRETS = ("password", "sslpassword")
_HEAD = """\
# Written by `table-queue-exporter discover`. Names that stand nowhere else are yours to change.
# `table-queue-exporter doctor --config.file=…` tells what can be measured, and what would help."""


async def discover_text(config: Config) -> str:
    """A configuration file for each database of a configuration. Raises PollError."""
    databases, queues = [], []
    for name, database in config.databases.items():
        connection = Connection(database)
        await connection.connect()
        try:
            session = Session.of(database)
            known = await find_known(connection, session)
            guesses = await find_guesses(connection, session, [found.table for found in known])
        finally:
            await connection.close()
        databases += _database(name, database)
        queues += _queues(name, known, guesses)
    return "\n".join([_HEAD, "databases:", *databases, *queues]) + "\n"


def _database(name: str, database: DatabaseConfig) -> list[str]:
    """The database's part. Its password is left out: what is printed gets copied."""
    dsn = database.dsn.get_secret_value()
    parameters = conninfo_to_dict(dsn)
    secret = any(parameters.get(key) for key in _SECRETS)
    if secret:
        dsn = make_conninfo(**{k: str(v) for k, v in parameters.items() if k not in _SECRETS})
    lines = [f"  {_scalar(name)}:", f"    {_entry('dsn', dsn)}"]
    if secret:
        lines.append("    # The password was left out; name a file that holds it:")
        lines.append("    # password_file: /run/secrets/database-password")
    return lines


def _queues(database: str, known: list[Found], guesses: list[Guess]) -> list[str]:
    lines = ["queues:" if known else "queues:  # none of a known kind was found"]
    for found in known:
        lines.append(f"  # {_comment(found.table.label)}: {_comment(found.preset.title)}")
        lines += _item(
            {
                "name": found.name,
                "database": database,
                "table": _table(found.table),
                "preset": found.preset.name,
            }
        )
    names = queue_names((guess.table for guess in guesses), (found.name for found in known))
    for name, guess in zip(names, guesses, strict=True):
        lines += ["", *_guess(name, database, guess)]
    return lines


def _guess(name: str, database: str, guess: Guess) -> list[str]:
    lines = [f"  ## A guess: {_comment(guess.table.label)}: {_comment(guess.reason)}."]
    if not guess.expressions:
        return lines
    if guess.assumed:
        lines.append(f"  ## Nothing in the catalog proves {', '.join(guess.assumed)}: correct it.")
    lines.append("  ## Check each expression, then uncomment:")
    keys = {"name": name, "database": database, "table": _table(guess.table), "preset": "none"}
    if "attempts" in guess.expressions:
        keys |= {"attempts_counted_at": "claim"}
    return lines + [
        "  # " + line.removeprefix("  ") for line in _item(keys | dict(guess.expressions))
    ]


def _item(keys: dict[str, str]) -> list[str]:
    return [
        f"  {'-' if index == 0 else ' '} {_entry(key, value)}"
        for index, (key, value) in enumerate(keys.items())
    ]


def _table(table: TableName) -> str:
    return f"{quote_if_needed(table.schema)}.{quote_if_needed(table.name)}"


def _entry(key: str, value: str) -> str:
    """One ``key: value`` line; a dollar sign is doubled, or it would begin a variable."""
    return f"{key}: {_scalar(value.replace('$', '$$'))}"


def _scalar(value: str) -> str:
    text = yaml.safe_dump([value], width=float("inf"), allow_unicode=True)
    return text.removeprefix("- ").rstrip("\n")


def _comment(text: str) -> str:
    """A text that stays in its comment, whatever a table is named."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
