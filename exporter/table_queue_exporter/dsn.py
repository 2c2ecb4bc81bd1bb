"""Connection strings: checked without showing them, completed with secrets from files."""

from pathlib import Path
from urllib.parse import unquote

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from .errors import PollError, Reason

_ADVICE = (
    "percent-encode special characters in its user and password (@ is %40, / is %2F), "
    "or put the password into a file and name it in password_file"
)


def check_dsn(dsn: str) -> None:
    """Raises ValueError when libpq could not parse the string, or would misread it.

    The message never holds any of it: a password that is not percent-encoded spills into what
    libpq takes for a host, a port or a parameter.
    """
    scheme, separator, rest = dsn.partition("://")
    if separator and scheme in ("postgresql", "postgres"):
        authority, _, path = rest.partition("/")
        user, at, host = authority.partition("@")
        if "@" in host or "@" in path.partition("?")[0]:
            raise ValueError(f"the dsn holds an @ that ends no user and password: {_ADVICE}")
        if at and "?" in user:
            raise ValueError(f"the dsn holds a ? before its @: {_ADVICE}")
    try:
        parameters = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        raise ValueError(f"the dsn cannot be parsed: {_ADVICE}") from None
    for port in str(parameters.get("port") or "").split(","):
        if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            raise ValueError(f"the dsn's port is not a port number: {_ADVICE}")


def has_password(dsn: str) -> bool:
    """Whether a dsn carries a password, which then shows in the list of processes."""
    return bool(conninfo_to_dict(dsn).get("password"))


def complete_dsn(
    dsn: str, dsn_file: Path | None, password: str | None, password_file: Path | None
) -> str:
    """The connection string to use now, its files read afresh (secrets rotate).

    Raises PollError(connection) when a file cannot be read or does not hold a dsn.
    """
    if dsn_file is not None:
        dsn = _read_secret(dsn_file, "dsn_file")
        try:
            check_dsn(dsn)
        except ValueError as error:
            raise PollError(Reason.CONNECTION, f"dsn_file {dsn_file}: {error}") from None
    if password_file is not None:
        password = _read_secret(password_file, "password_file")
    if password is None:
        return dsn
    if "\0" in password:
        raise PollError(Reason.CONNECTION, "the password holds a zero byte, which no server takes")
    return make_conninfo(dsn, password=password)


def secrets_of(dsn: str) -> set[str]:
    """Every spelling of the password of a dsn, for redaction."""
    password = conninfo_to_dict(dsn).get("password")
    if not password:
        return set()
    raw = dsn.partition("://")[2].partition("@")[0].partition(":")[2]
    found = {str(password)}
    if raw and unquote(raw) == password:
        found.add(raw)
    return found


def _read_secret(path: Path, key: str) -> str:
    try:
        return path.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise PollError(Reason.CONNECTION, f"{key} {path} cannot be read: {reason}") from error
