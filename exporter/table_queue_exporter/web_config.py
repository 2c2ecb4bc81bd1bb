"""TLS and passwords for the web server: the file of ``--web.config.file``, always up to date."""

import asyncio
import base64
import hashlib
import hmac
import os
import re
import secrets
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import bcrypt
import structlog
from aiohttp import web
from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from .errors import ConfigError, Problem
from .yaml_source import YamlPath, YamlSource, load_yaml

log = structlog.get_logger()

_HASH = re.compile(r"\$2[aby]\$(?:0[4-9]|[12]\d|3[01])\$[./A-Za-z0-9]{53}")
_LONGEST_PASSWORD = 72
"""bcrypt looks no further."""
_UNASKED = 300.0
"""Seconds after which a right password that nobody used is checked with bcrypt again."""
_UNSUPPORTED: Mapping[str, str] = {
    "http_server_config.headers": "let a proxy add headers",
    "rate_limit": "let a proxy limit requests",
    "tls_server_config.cert": "write cert_file",
    "tls_server_config.key": "write key_file",
    "tls_server_config.client_ca": "write client_ca_file",
    "tls_server_config.client_allowed_sans": "use a CA that signs nobody else in client_ca_file",
    "tls_server_config.cipher_suites": "use min_version: TLS13",
    "tls_server_config.curve_preferences": "OpenSSL's own order is used",
}
"""What the exporter-toolkit knows and would be missed here, and what to do instead."""


def _hash(value: str) -> str:
    try:
        if _HASH.fullmatch(value):
            bcrypt.hashpw(b"", b"$2b$04$" + value[7:29].encode())  # cheap: only tries the salt
            return value
    except ValueError:
        pass
    raise ValueError("is not a bcrypt hash: it begins with $2y$, $2b$ or $2a$")


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class _Tls(_Settings):
    cert_file: str
    key_file: str
    client_auth_type: Literal[
        "NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert"
    ] = "NoClientCert"
    client_ca_file: str | None = None
    min_version: Literal["TLS12", "TLS13"] = "TLS12"
    max_version: Literal["TLS12", "TLS13"] = "TLS13"
    prefer_server_cipher_suites: bool = True  # without effect, as in Go since 1.17


class _Http(_Settings):
    http2: bool = False  # without effect: aiohttp speaks HTTP/1.1, and clients of HTTP/2 do too


class _File(_Settings):
    tls_server_config: _Tls | None = None
    http_server_config: _Http | None = None
    basic_auth_users: dict[str, Annotated[str, AfterValidator(_hash)]] | None = None


@dataclass(frozen=True)
class WebConfig:
    """One reading of the file. ``context`` is None without TLS; ``users`` maps to hashes."""

    context: ssl.SSLContext | None
    users: Mapping[str, str]


class LiveWebConfig:
    """The file as it is now, or as it last was without a mistake. The constructor may raise."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files = [path]
        self._config: WebConfig | None = None
        self._stamps: list[object] = []
        self._passwords = _Passwords()
        self.current()

    def current(self) -> WebConfig:
        """What new connections and requests get. Looks at the files, reads those that changed.

        Raises ConfigError the first time only; later a mistake is logged once.
        """
        if self._config is not None and self._stamps == self._stamp():
            return self._config
        try:
            config = self._read()
        except ConfigError as error:
            if self._config is None:
                raise
            log.error("web configuration not reloaded; the last good one stays", error=str(error))
            return self._config
        if self._config is not None:
            log.info("web configuration reloaded", file=str(self._path))
        self._config = config
        return config

    def context(self) -> ssl.SSLContext | None:
        """For the listening socket: each connection begins with the certificates of its time."""
        return None if self.current().context is None else _LiveContext(self)

    @property
    def middleware(self) -> Callable[[web.Request, _Handler], Awaitable[web.StreamResponse]]:
        """Asks for a user's password where the file names users."""

        @web.middleware
        async def authenticate(request: web.Request, handler: _Handler) -> web.StreamResponse:
            users = self.current().users
            header = request.headers.get("Authorization", "")
            if users and not await self._passwords.right(users, header):
                challenge = {"WWW-Authenticate": 'Basic realm="table-queue-exporter"'}
                return web.Response(status=401, text="Unauthorized\n", headers=challenge)
            return await handler(request)

        return authenticate
