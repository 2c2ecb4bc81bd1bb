"""Asks a running exporter for a page: ``python -m table_queue_exporter.probe``.

For containers: images have no curl, and a page that asks for a password cannot be asked by a
kubelet without putting the password into the pod. Exit code 0 when the page came, 1 when not.
Imports the standard library only: it starts every few seconds.
"""

import argparse
import base64
import http.client
import os
import ssl
import sys
from pathlib import Path
from urllib.parse import urlsplit

_ENV = "TABLE_QUEUE_EXPORTER_WEB_"


def main(arguments: list[str] | None = None) -> int:
    """Runs as a program; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m table_queue_exporter.probe",
        description="Ask a running exporter for a page; exit code 1 when it does not come.",
    )
    parser.add_argument("--url", default=_own_health(), help="the page; default: %(default)s")
    parser.add_argument("--user-file", type=Path, help="file that holds the user's name")
    parser.add_argument("--password-file", type=Path, help="file that holds the password")
    parser.add_argument(
        "--tls-skip-verify", action="store_true", help="take any certificate, on loopback"
    )
    parser.add_argument("--expect", default="", help="text that the page must hold")
    parser.add_argument("--timeout", type=float, default=5, help="seconds; default: %(default)s")
    options = parser.parse_args(arguments)
    try:
        status, text = _get(options)
    except (OSError, http.client.HTTPException, ValueError) as error:
        sys.stderr.write(f"{options.url}: {error}\n")
        return 1
    if status != 200:
        sys.stderr.write(f"{options.url}: status {status}: {text[:500].strip()}\n")
        return 1
    if options.expect not in text:
        sys.stderr.write(f"{options.url}: {options.expect} is not on the page\n")
        return 1
    return 0


def _own_health() -> str:
    """Where the exporter that has the same environment as we tells its health."""
    host, _, port = os.environ.get(_ENV + "LISTEN_ADDRESS", ":9947").rpartition(":")
    prefix = os.environ.get(_ENV + "ROUTE_PREFIX", "").strip("/")
    page = f"{prefix}/-/healthy" if prefix else "-/healthy"
    return f"http://{host or '127.0.0.1'}:{port}/{page}"


def _get(options: argparse.Namespace) -> tuple[int, str]:
    url = urlsplit(options.url)
    if url.scheme not in ("http", "https") or url.hostname is None:
        raise ValueError("is not an http or https URL")
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=options.timeout)
    if url.scheme == "https":
        context = ssl.create_default_context()
        if options.tls_skip_verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        connection = http.client.HTTPSConnection(
            url.hostname, url.port, timeout=options.timeout, context=context
        )
    headers = {}
    if options.user_file is not None and options.password_file is not None:
        pair = f"{_secret(options.user_file)}:{_secret(options.password_file)}"
        headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
    try:
        connection.request("GET", url.path or "/", headers=headers)
        response = connection.getresponse()
        return response.status, response.read().decode("utf-8", "replace")
    finally:
        connection.close()


def _secret(path: Path) -> str:
    return path.read_text(encoding="utf-8").rstrip("\r\n")


if __name__ == "__main__":
    sys.exit(main())
