"""Guards the web server with the TLS and the users that the web configuration file names now."""

import asyncio
import base64
import hmac
import secrets
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import bcrypt
import structlog
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from .errors import ConfigError, Problem
from .web_config import WebConfig, load_web_config

log = structlog.get_logger()

_LONGEST_PASSWORD = 72
"""Bytes that bcrypt looks at; tools that make hashes drop the rest."""
_REMEMBERED = 300.0
"""Seconds after its last use for which a right password is not checked with bcrypt again."""


class WebGuard:
    """The file as it is now, or as it was before somebody broke it.

    The constructor raises ConfigError.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamps: dict[Path, object] = {}
        self._config = self._read()
        self._passwords = _Passwords()

    def current(self) -> WebConfig:
        """What new connections and requests get: files that changed are read again.

        A mistake is logged once, and the last good reading stays.
        """
        if any(_stamp(path) != stamp for path, stamp in self._stamps.items()):
            try:
                self._config = self._checked(self._read())
            except ConfigError as error:
                text = "web configuration not reloaded; the last good one stays"
                log.error(text, error=str(error))
            else:
                log.info("web configuration reloaded", file=str(self._path))
        return self._config

    def context(self) -> ssl.SSLContext | None:
        """For the listening socket; each connection gets the certificates of its time."""
        return None if self._config.context is None else _LiveContext(self)

    def middleware(self) -> Middleware:
        """Asks for the password of one of the users, where there are any."""

        @web.middleware
        async def authenticate(request: web.Request, handler: Handler) -> web.StreamResponse:
            users = self.current().users
            header = request.headers.get("Authorization", "")
            if users and not await self._passwords.right(users, header):
                challenge = {"WWW-Authenticate": 'Basic realm="table-queue-exporter"'}
                return web.Response(status=401, text="Unauthorized\n", headers=challenge)
            return await handler(request)

        return authenticate

    def _read(self) -> WebConfig:
        self._stamps = {}
        return load_web_config(self._path, self._note)

    def _note(self, path: Path) -> None:
        """Taken before the file is read, so that no change goes unseen."""
        self._stamps[path] = _stamp(path)

    def _checked(self, new: WebConfig) -> WebConfig:
        """Protection never falls away under a running process: a half-written file is empty."""
        if (new.context is None) != (self._config.context is None):
            problem = "tls_server_config", "cannot be added or taken away without a restart"
        elif self._config.users and not new.users:
            problem = "basic_auth_users", "the last user cannot be taken away without a restart"
        else:
            return new
        raise ConfigError([Problem(str(self._path), None, *problem)])


class _LiveContext(ssl.SSLContext):
    """Hands each connection to the newest context. asyncio calls wrap_bio for each."""

    def __new__(cls, live: WebGuard) -> "_LiveContext":
        return super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)

    def __init__(self, live: WebGuard) -> None:
        self._live = live

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        context = self._live.current().context
        assert context is not None  # TLS does not go while the process runs
        return context.wrap_bio(*arguments, **options)


class _Passwords:
    """Checks passwords one at a time beside the event loop, and remembers the right ones."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._lock = asyncio.Lock()
        self._right: dict[str, tuple[bytes, float]] = {}

    async def right(self, users: Mapping[str, str], header: str) -> bool:
        """Whether an Authorization header names one of the users and its password."""
        user, password = _credentials(header)
        if user is None:
            return False
        # An unknown user costs as much as a known one, so that time does not tell them apart.
        hashed = users.get(user, next(iter(users.values()))).encode()
        digest = hmac.digest(self._key, hashed + b" " + password, "sha256")
        if self._remembers(user, digest):
            return True
        async with self._lock:
            if self._remembers(user, digest):
                return True
            right = await asyncio.to_thread(bcrypt.checkpw, password, hashed) and user in users
        if right:
            self._right[user] = digest, time.monotonic()
        return right

    def _remembers(self, user: str, digest: bytes) -> bool:
        known, used = self._right.get(user, (b"", 0.0))
        now = time.monotonic()
        right = hmac.compare_digest(known, digest) and now - used < _REMEMBERED
        if right:
            self._right[user] = digest, now
        return right


def _credentials(header: str) -> tuple[str | None, bytes]:
    scheme, _, encoded = header.partition(" ")
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        name = user.decode()
    except ValueError:
        return None, b""
    return name if scheme.lower() == "basic" and colon else None, password[:_LONGEST_PASSWORD]


def _stamp(path: Path) -> object:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
