"""The file of ``--web.config.file``: TLS and users for the web server, validated."""

import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import bcrypt
from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from .errors import ConfigError, Problem
from .yaml_source import YamlSource, format_path, load_yaml

_HASH = re.compile(r"\$2[aby]\$(?:0[4-9]|[12]\d|3[01])\$[./A-Za-z0-9]{53}")
_UNSUPPORTED: Mapping[str, str] = {
    "http_server_config.headers": "let a proxy add headers",
    "rate_limit": "let a proxy limit requests",
    "tls_server_config.cert": "write cert_file",
    "tls_server_config.key": "write key_file",
    "tls_server_config.client_ca": "write client_ca_file",
    "tls_server_config.client_allowed_sans": "name a CA in client_ca_file that signs nobody else",
    "tls_server_config.cipher_suites": "restrict with min_version: TLS13",
    "tls_server_config.curve_preferences": "OpenSSL's order is used",
}
"""What exporter-toolkit knows and would be missed if it were passed over, and what to do."""


def _is_hash(value: str) -> str:
    try:
        if _HASH.fullmatch(value):
            bcrypt.hashpw(b"", b"$2b$04$" + value[7:29].encode())  # is the salt well-formed?
            return value
    except ValueError:
        pass
    raise ValueError("is not a bcrypt hash, such as htpasswd -nBC 10 '' prints")


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
    prefer_server_cipher_suites: bool = True  # without effect, as in exporter-toolkit


class _Http(_Settings):
    http2: bool = False  # without effect: every client of HTTP/2 speaks HTTP/1.1 too


class _File(_Settings):
    tls_server_config: _Tls | None = None
    http_server_config: _Http | None = None
    basic_auth_users: dict[str, Annotated[str, AfterValidator(_is_hash)]] | None = None


_SECTIONS: Mapping[str, type[BaseModel]] = {
    "": _File,
    "tls_server_config": _Tls,
    "http_server_config": _Http,
}
_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_MODES = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}


@dataclass(frozen=True)
class WebConfig:
    """One reading of the file. ``context`` is None without TLS; ``users`` holds their hashes."""

    context: ssl.SSLContext | None
    users: Mapping[str, str]


def load_web_config(
    path: Path, before_reading: Callable[[Path], None] = lambda path: None
) -> WebConfig:
    """Reads the file and the certificates that it names. Raises ConfigError.

    ``before_reading`` is told of each file before it is read.
    """
    before_reading(path)
    try:
        source = load_yaml(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise ConfigError([Problem(str(path), None, "", f"cannot be read: {reason}")]) from error
    data = {} if source.data is None else source.data
    problems = list(source.problems)
    if not isinstance(data, dict):
        problems.append(source.problem((), f"must hold keys: {', '.join(_File.model_fields)}"))
    if problems:
        raise ConfigError(problems)
    try:
        settings = _File.model_validate(data)
    except ValidationError as error:
        raise ConfigError([_problem(source, detail) for detail in error.errors()]) from None
    context = None
    if (tls := settings.tls_server_config) is not None:
        for name in (tls.cert_file, tls.key_file, tls.client_ca_file):
            if name is not None:
                before_reading(path.parent / name)
        context = _tls_context(source, tls, path.parent)
    return WebConfig(context, settings.basic_auth_users or {})


def _tls_context(source: YamlSource, tls: _Tls, directory: Path) -> ssl.SSLContext:
    """Raises ConfigError."""

    def wrong(key: str, message: str) -> ConfigError:
        return ConfigError([source.problem(("tls_server_config", key), message)])

    mode = _MODES[tls.client_auth_type]
    if tls.max_version < tls.min_version:
        raise wrong("max_version", "is below min_version")
    if mode != ssl.CERT_NONE and tls.client_ca_file is None:
        raise wrong("client_auth_type", "needs client_ca_file")
    if mode == ssl.CERT_NONE and tls.client_ca_file is not None:
        raise wrong("client_ca_file", "needs client_auth_type: RequireAndVerifyClientCert")
    contents = {"cert_file": "CERTIFICATE", "key_file": "PRIVATE KEY"}
    if tls.client_ca_file is not None:
        contents["client_ca_file"] = "CERTIFICATE"
    for key, content in contents.items():
        try:
            data = (directory / getattr(tls, key)).read_bytes()
        except OSError as error:
            raise wrong(key, f"{getattr(tls, key)} cannot be read: {error.strerror}") from error
        if f"{content}-----".encode() not in data:
            raise wrong(key, f"{getattr(tls, key)} holds no {content.lower()} in PEM form")
        if key == "key_file" and b"ENCRYPTED" in data:
            raise wrong(key, "is encrypted: store the key without a passphrase")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[tls.min_version]
    context.maximum_version = _VERSIONS[tls.max_version]
    context.verify_mode = mode
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as in Go: any CA of the file will do
    try:
        context.load_cert_chain(directory / tls.cert_file, directory / tls.key_file, password="")
    except OSError as error:
        reason = getattr(error, "reason", None) or error.strerror
        if reason == "KEY_VALUES_MISMATCH":
            raise wrong("key_file", "does not belong to the certificate in cert_file") from error
        raise wrong("cert_file", f"cannot be used with key_file: {reason}") from error
    if tls.client_ca_file is not None:
        try:
            context.load_verify_locations(directory / tls.client_ca_file)
        except OSError as error:
            reason = getattr(error, "reason", None) or error.strerror
            raise wrong("client_ca_file", f"cannot be used: {reason}") from error
    return context


def _problem(source: YamlSource, detail: ErrorDetails) -> Problem:
    """One of pydantic's errors in our words. Never shows the value, which may be a secret."""
    path = detail["loc"]
    message = detail["msg"].removeprefix("Value error, ")
    if detail["type"] == "missing":
        message = "is required"
    elif detail["type"] == "extra_forbidden":
        known = ", ".join(_SECTIONS[format_path(path[:-1])].model_fields)
        instead = _UNSUPPORTED.get(format_path(path))
        message = f"is not supported: {instead}" if instead else f"is not a known key; use {known}"
    return source.problem(path, message[0].lower() + message[1:])
