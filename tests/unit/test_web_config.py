"""--web.config.file: TLS, client certificates and passwords, asked as a scraper would ask."""

import asyncio
import base64
import http.client
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Self

import bcrypt
import pytest
import trustme
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from table_queue_exporter.cli import main
from table_queue_exporter.errors import ConfigError
from table_queue_exporter.web_config import load_web_config
from table_queue_exporter.web_guard import WebGuard
from tests.support.processes import ExporterProcess

TLS = """\
tls_server_config:
  cert_file: server.pem
  key_file: keys/server.key
"""


def hash_of(password: str) -> str:
    """A cheap hash, as htpasswd writes it."""
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode().replace("$2b", "$2y")


DAVE = hash_of("dave123")


class Site:
    """A directory with a web configuration, and the exporter that serves with it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.file = directory / "web.yml"
        self.ca = trustme.CA()
        (directory / "keys").mkdir()
        self.ca.cert_pem.write_to_path(directory / "ca.pem")
        self.new_certificate()

    def new_certificate(self) -> None:
        certificate = self.ca.issue_cert("127.0.0.1")
        certificate.cert_chain_pems[0].write_to_path(self.directory / "server.pem")
        certificate.private_key_pem.write_to_path(self.directory / "keys/server.key")

    def serve(self, config: str, *arguments: str) -> "Served":
        self.file.write_text(config)
        return Served(self.file, *arguments)

    def client(
        self, ca: trustme.CA | None = None, most: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
    ) -> ssl.SSLContext:
        """A client that trusts the site; with a CA it shows a certificate of that CA."""
        context = ssl.create_default_context()
        context.maximum_version = most
        self.ca.configure_trust(context)
        if ca is not None:
            ca.issue_cert("prometheus@example.org").configure_cert(context)
        return context


class Served(ExporterProcess):
    """The exporter with a web configuration; its database does not answer, which is no matter."""

    def __init__(self, file: Path, *arguments: str) -> None:
        super().__init__(
            None, "--database.dsn=host=127.0.0.1 port=1", f"--web.config.file={file}", *arguments
        )

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    def _answers(self) -> bool:
        assert self.process.poll() is None, f"the exporter ended: {self.log()}"
        return "msg=listening" in self.log()

    def connect(self, context: ssl.SSLContext | None) -> http.client.HTTPConnection:
        if context is None:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=10, context=context)

    def ask(
        self,
        context: ssl.SSLContext | None = None,
        path: str = "/metrics",
        *,
        login: str | None = None,
        authorization: str | None = None,
    ) -> http.client.HTTPResponse:
        """The answer over a connection of its own."""
        connection = self.connect(context)
        try:
            return ask(connection, path, login=login, authorization=authorization)
        finally:
            connection.close()


def ask(
    connection: http.client.HTTPConnection,
    path: str = "/metrics",
    *,
    login: str | None = None,
    authorization: str | None = None,
) -> http.client.HTTPResponse:
    if login is not None:
        authorization = "Basic " + base64.b64encode(login.encode()).decode()
    headers = {} if authorization is None else {"Authorization": authorization}
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    response.read()
    return response


def certificate_of(connection: http.client.HTTPConnection) -> bytes | None:
    assert isinstance(connection.sock, ssl.SSLSocket)
    return connection.sock.getpeercert(binary_form=True)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, Served]]:
    """TLS; what else a test needs, it writes into the file."""
    site = Site(tmp_path_factory.mktemp("secure"))
    with site.serve(TLS) as served:
        yield site, served


def test_tls_answers_and_plain_http_is_refused(secure: tuple[Site, Served]) -> None:
    site, served = secure
    site.file.write_text(TLS)
    assert served.ask(site.client()).status == 200
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        served.ask()
    with pytest.raises(ssl.SSLCertVerificationError):
        served.ask(ssl.create_default_context())
    assert served.ask(site.client()).status == 200
    assert "Traceback" not in served.log()


def test_tls_versions_are_kept(secure: tuple[Site, Served]) -> None:
    site, served = secure
    site.file.write_text(TLS + "  min_version: TLS13\n")
    assert served.ask(site.client()).status == 200
    with pytest.raises(ssl.SSLError):
        served.ask(site.client(most=ssl.TLSVersion.TLSv1_2))
    site.file.write_text(TLS + "  max_version: TLS12\n")
    with closing(served.connect(site.client())) as connection:
        assert ask(connection).status == 200
        assert isinstance(connection.sock, ssl.SSLSocket)
        assert connection.sock.version() == "TLSv1.2"


def test_client_certificates_are_required_and_verified(secure: tuple[Site, Served]) -> None:
    site, served = secure
    asked = TLS + "  client_ca_file: clients.pem\n  client_auth_type: "
    ours, theirs = trustme.CA(), trustme.CA()
    ours.cert_pem.write_to_path(site.directory / "clients.pem")
    site.file.write_text(asked + "RequireAndVerifyClientCert\n")
    assert served.ask(site.client(ours)).status == 200
    for client in (site.client(), site.client(theirs)):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            served.ask(client)

    site.file.write_text(asked + "VerifyClientCertIfGiven\n")
    assert served.ask(site.client()).status == 200
    with pytest.raises((ssl.SSLError, ConnectionError)):
        served.ask(site.client(theirs))

    # Another CA takes the place of the first, which is trusted no longer.
    theirs.cert_pem.write_to_path(site.directory / "clients.pem")
    assert served.ask(site.client(theirs)).status == 200
    with pytest.raises((ssl.SSLError, ConnectionError)):
        served.ask(site.client(ours))


def test_new_certificates_reach_new_connections(secure: tuple[Site, Served]) -> None:
    site, served = secure
    site.file.write_text(TLS)
    with (
        closing(served.connect(site.client())) as old,
        closing(served.connect(site.client())) as new,
    ):
        assert ask(old).status == 200
        site.new_certificate()
        assert ask(new).status == 200
        assert certificate_of(new) != certificate_of(old)
        assert ask(old).status == 200


def test_passwords(site: Site) -> None:
    anna = hash_of("päss:word")
    users = f"basic_auth_users:\n  dave: {DAVE}\n  anna: {anna}\n"
    with site.serve(users) as served:
        for path in ("/metrics", "/", "/-/healthy", "/-/reload", "/nowhere"):
            answer = served.ask(path=path)
            assert answer.status == 401, path
            assert answer.headers["WWW-Authenticate"].startswith("Basic ")
        for _ in range(2):  # asked with bcrypt, then remembered
            assert served.ask(login="dave:dave123").status == 200
            assert served.ask(login="anna:päss:word").status == 200
        for login in ("dave:wrong", "dave:päss:word", "eve:dave123", "dave:", ":dave123", "dave"):
            assert served.ask(login=login).status == 401, login
        dave = base64.b64encode(b"dave:dave123").decode()
        for header in ("", "Basic", "Basic !", f"Bearer {dave}", "Basic " + "A" * 5, "Basic /w=="):
            assert served.ask(authorization=header).status == 401, header
        assert served.ask(authorization=f"basic {dave}").status == 200
        assert "dave123" not in served.log()
        assert "Traceback" not in served.log()


def test_passwords_change_without_a_restart(site: Site) -> None:
    with (
        site.serve(f"basic_auth_users:\n  dave: {DAVE}\n") as served,
        closing(served.connect(None)) as connection,
    ):
        assert ask(connection, login="dave:dave123").status == 200
        site.file.write_text(f"basic_auth_users:\n  dave: {hash_of('new')}\n")
        assert ask(connection, login="dave:dave123").status == 401
        assert ask(connection, login="dave:new").status == 200
        site.file.write_text(f"basic_auth_users:\n  eve: {hash_of('new')}\n")
        assert ask(connection, login="dave:new").status == 401
        assert ask(connection, login="eve:new").status == 200


def test_a_mistake_made_later_is_logged_once_and_the_last_good_file_stays(site: Site) -> None:
    good = TLS + f"basic_auth_users:\n  dave: {DAVE}\n"
    with site.serve(good) as served:
        client = site.client()
        server_key = (site.directory / "keys/server.key").read_text()

        def told(text: str) -> int:
            for _ in range(3):
                assert served.ask(client, login="dave:dave123").status == 200
                assert served.ask(client).status == 401
            lines = [line for line in served.log().splitlines() if text in line]
            assert all("level=error" in line for line in lines)
            return len(lines)

        site.file.write_text(good + "  eve: secret\n")
        assert told("web.yml:6: basic_auth_users.eve: is not a bcrypt hash") == 1
        site.file.write_text(good + "\t- ?")
        assert told("not valid YAML") == 1
        site.file.write_text("")  # as while somebody writes it
        assert told("tls_server_config: cannot be added or taken away") == 1
        site.file.write_text(TLS)
        assert told("basic_auth_users: the last user cannot be taken away") == 1
        site.file.unlink()
        assert told("web.yml: cannot be read: No such file") == 1
        site.file.write_text(good)
        trustme.CA().private_key_pem.write_to_path(site.directory / "keys/server.key")
        assert told("web.yml:3: tls_server_config.key_file: does not belong to the") == 1
        (site.directory / "keys/server.key").unlink()
        assert told("web.yml:3: tls_server_config.key_file: keys/server.key cannot be read") == 1
        assert "secret" not in served.log()

        (site.directory / "keys/server.key").write_text(server_key)
        site.file.write_text(good + f"  eve: {hash_of('good')}\n")
        with closing(served.connect(client)) as connection:
            assert ask(connection, login="eve:good").status == 200
            assert served.stop() == 0  # an open connection does not hold it up
        assert "Traceback" not in served.log()


def test_a_mistake_at_the_start_ends_it(site: Site) -> None:
    site.file.write_text("# ours\nbasic_auth_users:\n  dave: dave123\n")
    arguments = ["serve", "--database.dsn=host=127.0.0.1 port=1", f"--web.config.file={site.file}"]
    ended = subprocess.run(
        [sys.executable, "-m", "table_queue_exporter", *arguments],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"{site.file}:3: basic_auth_users.dave: is not a bcrypt hash")
    assert "dave123" not in ended.stderr


@pytest.mark.parametrize("twin", [False, True])
def test_check_reads_it_too(
    site: Site, twin: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    argument = [] if twin else [f"--web.config.file={site.file}"]
    monkeypatch.setattr(sys, "argv", ["table-queue-exporter", "check", *argument])
    if twin:
        monkeypatch.setenv("TABLE_QUEUE_EXPORTER_WEB_CONFIG_FILE", str(site.file))

    site.file.write_text(TLS + f"basic_auth_users:\n  dave: {DAVE}\n")
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert capsys.readouterr().out == f"{site.file}: fine. TLS: on. Users: dave.\n"

    site.file.write_text(TLS + "  min_version: TLS10\n")
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith(
        f"{site.file}:4: tls_server_config.min_version: input should be 'TLS12' or 'TLS13'"
    )


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ("[]", "web.yml:1: must hold keys: tls_server_config"),
        ("basic_auth: {}", "web.yml:1: basic_auth: is not a known key; use tls_server_config"),
        ("basic_auth_users:\n  a: $2y$10$short", "web.yml:2: basic_auth_users.a: is not a bcrypt"),
        ("basic_auth_users:\n  a: $2y$04$" + "z" * 53, "web.yml:2: basic_auth_users.a: is not a"),
        ("basic_auth_users:\n  a:", "web.yml:2: basic_auth_users.a: input should be"),
        ("basic_auth_users:\n  a: x\n  a: y", "web.yml:3: basic_auth_users.a: is given twice"),
        ("tls_server_config:\n  cert_file: server.pem", "tls_server_config.key_file: is required"),
        (TLS + "  min_version: TLS13\n  max_version: TLS12", "web.yml:5: tls_server_config.max_"),
        (TLS + "  client_ca_file: ca.pem", "web.yml:4: tls_server_config.client_ca_file: needs"),
        (TLS + "  client_auth_type: VerifyClientCertIfGiven", "client_auth_type: needs client_ca"),
        (TLS + "  client_auth_type: RequestClientCert", "web.yml:4: tls_server_config.client_auth"),
        (TLS + "  cipher_suites: []", "web.yml:4: tls_server_config.cipher_suites: is not support"),
        (TLS + "rate_limit: {burst: 1}", "web.yml:4: rate_limit: is not supported: let a proxy"),
        ("http_server_config:\n  headers: {}", "web.yml:2: http_server_config.headers: is not sup"),
        (TLS.replace("server.pem", "ca.key"), "web.yml:2: tls_server_config.cert_file: ca.key hol"),
        (TLS.replace("server.pem", "keys"), "tls_server_config.cert_file: keys cannot be read"),
        (TLS.replace("keys/server.key", "locked.key"), "web.yml:3: tls_server_config.key_file: is"),
        (TLS.replace("server.pem", "bad.pem"), "web.yml:2: tls_server_config.cert_file: cannot be"),
    ],
)
def test_problems_say_where(site: Site, config: str, problem: str) -> None:
    site.ca.private_key_pem.write_to_path(site.directory / "ca.key")
    begin, end = "-----BEGIN {}-----\n", "\n-----END {}-----\n"
    for name, kind in (("locked.key", "ENCRYPTED PRIVATE KEY"), ("bad.pem", "CERTIFICATE")):
        (site.directory / name).write_text(begin.format(kind) + "AAAA" + end.format(kind))
    site.file.write_text(config)
    with pytest.raises(ConfigError) as caught:
        load_web_config(site.file)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    "config",
    [
        "",
        "# nothing yet\n",
        "basic_auth_users:\ntls_server_config:\nhttp_server_config:\n",
        "http_server_config:\n  http2: true\n",
        "basic_auth_users: {}\n",
    ],
)
def test_nothing_set_is_plain_http_for_everybody(site: Site, config: str) -> None:
    site.file.write_text(config)
    assert load_web_config(site.file).context is None
    assert not load_web_config(site.file).users


def test_a_hash_may_come_from_the_environment(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRAPE_HASH", DAVE)
    site.file.write_text("basic_auth_users:\n  dave: ${SCRAPE_HASH}\n")
    assert load_web_config(site.file).users == {"dave": DAVE}


class CountedBcrypt:
    """bcrypt's own check, counted, and held while ``free`` is not set."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.free = threading.Event()
        self.free.set()
        self.passwords: list[bytes] = []
        self._check = bcrypt.checkpw

    def checkpw(self, password: bytes, hashed: bytes) -> bool:
        self.passwords.append(password)
        self.asked.set()
        assert self.free.wait(10)
        return self._check(password, hashed)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[CountedBcrypt]:
    counted = CountedBcrypt()
    monkeypatch.setattr(bcrypt, "checkpw", counted.checkpw)
    yield counted
    counted.free.set()


async def test_bcrypt_is_asked_once_and_beside_the_event_loop(
    site: Site, counted: CountedBcrypt
) -> None:
    async def hello(request: web.Request) -> web.Response:
        return web.Response(text="hello")

    long = "x" * 80  # htpasswd cuts at 72 bytes, and so must we
    site.file.write_text(
        f"basic_auth_users:\n  dave: {hash_of('a')}\n  anna: {hash_of(long[:72])}\n"
    )
    app = web.Application(middlewares=[WebGuard(site.file).middleware()])
    app.router.add_get("/", hello)
    async with TestClient(TestServer(app)) as client:

        async def status(login: str) -> int:
            header = "Basic " + base64.b64encode(login.encode()).decode()
            async with client.get("/", headers={"Authorization": header}) as answer:
                return answer.status

        assert [await status("dave:a") for _ in range(5)] == [200] * 5
        assert counted.passwords == [b"a"]
        assert [await status("dave:b") for _ in range(2)] == [401] * 2
        assert [await status("eve:a") for _ in range(2)] == [401] * 2
        assert counted.passwords == [b"a", b"b", b"b", b"a", b"a"]
        assert await status(f"anna:{long}") == 200

        counted.asked.clear()
        counted.free.clear()
        held = asyncio.create_task(status("dave:guess"))
        assert await asyncio.to_thread(counted.asked.wait, 10)
        assert await status("dave:a") == 200  # while bcrypt works on the guess
        assert not held.done()
        counted.free.set()
        assert await held == 401
