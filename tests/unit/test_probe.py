"""The health check of containers, against a real exporter."""

import socket
from pathlib import Path

import bcrypt
import pytest
import trustme

from table_queue_exporter import probe
from tests.support.processes import ExporterProcess, free_port

UNREACHABLE = ("--database.dsn=host=127.0.0.1 port=1",)


@pytest.fixture
def secrets(tmp_path: Path) -> list[str]:
    (tmp_path / "username").write_text("prober")
    (tmp_path / "password").write_text("geheim\n")
    return [f"--user-file={tmp_path / 'username'}", f"--password-file={tmp_path / 'password'}"]


def test_tells_health_and_what_is_on_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    with ExporterProcess(None, *UNREACHABLE) as exporter:
        base = f"http://127.0.0.1:{exporter.port}"
        assert probe.main([f"--url={base}/-/healthy"]) == 0
        expect = "--expect=table_queue_exporter_build_info"
        assert probe.main([f"--url={base}/metrics", expect]) == 0
        assert capsys.readouterr().err == ""
        assert probe.main([f"--url={base}/metrics", "--expect=no_such_metric"]) == 1
        assert "no_such_metric is not on the page" in capsys.readouterr().err
        assert probe.main([f"--url={base}/nowhere"]) == 1
        assert "status 404" in capsys.readouterr().err


def test_nobody_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert probe.main([f"--url=http://127.0.0.1:{free_port()}/-/healthy"]) == 1
    assert "Connection refused" in capsys.readouterr().err
    assert probe.main(["--url=ftp://127.0.0.1/"]) == 1
    assert "is not an http or https URL" in capsys.readouterr().err


class Guarded(ExporterProcess):
    """An exporter that answers nobody without a password."""

    def _answers(self) -> bool:
        assert self.process.poll() is None, f"the exporter ended: {self.log()}"
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
def test_shows_a_password_where_one_is_asked_for(
    tmp_path: Path, secrets: list[str], tls: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    hashed = bcrypt.hashpw(b"geheim", bcrypt.gensalt(4)).decode()
    web = f"basic_auth_users:\n  prober: {hashed}\n"
    arguments = []
    if tls:
        certificate = trustme.CA().issue_cert("exporter.example.org")
        certificate.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
        certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
        web += "tls_server_config: {cert_file: cert.pem, key_file: key.pem}\n"
        arguments = ["--tls-skip-verify"]
    (tmp_path / "web.yml").write_text(web)
    with Guarded(None, *UNREACHABLE, f"--web.config.file={tmp_path / 'web.yml'}") as exporter:
        url = f"--url={'https' if tls else 'http'}://127.0.0.1:{exporter.port}/-/healthy"
        assert probe.main([url, *arguments]) == 1
        assert "status 401" in capsys.readouterr().err
        assert probe.main([url, *arguments, *secrets]) == 0
        if tls:
            assert probe.main([url, *secrets]) == 1
            assert "CERTIFICATE_VERIFY_FAILED" in capsys.readouterr().err
