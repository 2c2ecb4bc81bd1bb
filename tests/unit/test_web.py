"""The web server as scrapers, kubelets and people meet it: a real process with a real database."""

import gzip
import http.client
import json
import signal
from collections.abc import Iterator
from email.message import Message

import pytest
from aiohttp.test_utils import TestClient, TestServer

from table_queue_exporter.app import Exporter
from table_queue_exporter.config import parse_config
from table_queue_exporter.demo.server import LocalServer
from table_queue_exporter.exposition import Format
from table_queue_exporter.web import Site, WebSettings
from tests.support.pages import Metrics
from tests.support.processes import ExporterProcess, free_port, wait_until
from tests.support.queues import REFERENCE_SCHEMA, configuration, execute, until_ready

PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
SCRIPT = "<script>alert('x')</script>&"


class Answer:
    """A response as it came over the wire."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers: Message = response.headers
        self.body = response.read()

    @property
    def text(self) -> str:
        return self.body.decode()


def ask(exporter: ExporterProcess, path: str, method: str = "GET", **headers: str) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", exporter.port, timeout=10)
    try:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, headers=names)
        return Answer(connection.getresponse())
    finally:
        connection.close()


@pytest.fixture(scope="module")
def config(newest_server: LocalServer) -> str:
    """A queue that is read, and one that is not and has an evil name."""
    dsn = newest_server.create_database("web")
    execute(dsn, REFERENCE_SCHEMA, "INSERT INTO payment (task_type) VALUES ('a'), ('ü \"q\"')")
    return configuration(
        dsn,
        "name: payment\ntable: payment\nobjective: 60s",
        f'name: "{SCRIPT}"\ntable: missing',
    )


@pytest.fixture(scope="module")
def exporter(config: str) -> Iterator[ExporterProcess]:
    with ExporterProcess(config, "--web.enable-lifecycle") as process:
        process.wait_for(lambda page: page.value("up", queue="payment") == 1, "the first poll")
        process.wait_for(
            lambda page: page.value("poll_errors_total", queue=SCRIPT, reason="undefined_object"),
            "the other queue to fail",
        )
        yield process


def test_metrics_as_text(exporter: ExporterProcess) -> None:
    answer = ask(exporter, "/metrics")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "Content-Encoding" not in answer.headers
    assert "Accept" in answer.headers["Vary"], "or a cache serves the wrong format"
    assert b"# EOF" not in answer.body
    page = Metrics(answer.text)
    assert page.by("task_type", "tasks", status="ready") == {"a": 1, 'ü "q"': 1}
    assert page.value("up", queue=SCRIPT) == 0
    assert page.samples["process_resident_memory_bytes"][0][1] > 1_000_000


def test_metrics_as_openmetrics(exporter: ExporterProcess) -> None:
    answer = ask(exporter, "/metrics", Accept=PROMETHEUS)
    kind = "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert answer.headers["Content-Type"] == kind
    assert answer.text.endswith("\n# EOF\n")
    assert answer.text.count("# EOF") == 1
    page = Metrics(answer.text, openmetrics=True)
    assert page.by("task_type", "tasks", status="ready") == {"a": 1, 'ü "q"': 1}
    text = Metrics(ask(exporter, "/metrics").text)
    assert set(page.names()) == set(text.names()), "the same series in both formats"
    assert len(page.families) == len(set(page.families)), "no family twice"
    assert "_created" not in answer.text


def test_metrics_compressed_for_whoever_can_read_it(exporter: ExporterProcess) -> None:
    plain = ask(exporter, "/metrics", Accept=PROMETHEUS)
    for accepted in ("gzip", "deflate, gzip;q=1.0, *;q=0.5", "GZIP"):
        answer = ask(exporter, "/metrics", Accept=PROMETHEUS, Accept_Encoding=accepted)
        assert answer.headers["Content-Encoding"] == "gzip"
        assert int(answer.headers["Content-Length"]) == len(answer.body) < len(plain.body) / 3
        text = gzip.decompress(answer.body).decode()
        assert text.endswith("# EOF\n")
        assert Metrics(text, openmetrics=True).value("up", queue="payment") == 1
    for refused in ("identity", "gzip;q=0", "br"):
        answer = ask(exporter, "/metrics", Accept_Encoding=refused)
        assert "Content-Encoding" not in answer.headers


def test_the_page_for_people(exporter: ExporterProcess) -> None:
    answer = ask(exporter, "/")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "payment" in answer.text
    assert 'href="/metrics"' in answer.text
    assert "relation &quot;public.missing&quot; does not exist" in answer.text, "why it is not read"


def test_names_are_text_and_not_markup(exporter: ExporterProcess) -> None:
    text = ask(exporter, "/").text
    assert "<script" not in text
    assert "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;&amp;" in text


def test_health_and_readiness(exporter: ExporterProcess) -> None:
    assert ask(exporter, "/-/healthy").status == 200
    ready = ask(exporter, "/-/ready")
    assert (ready.status, ready.text) == (200, "Ready.\n")


def test_head_and_what_is_not_there(exporter: ExporterProcess) -> None:
    for path in ("/", "/metrics", "/-/healthy", "/-/ready"):
        answer = ask(exporter, path, "HEAD")
        assert (answer.status, answer.body) == (200, b"")
    for path in ("/nothing", "/metrics/", "/-/", "//metrics", "/metrics/../etc/passwd"):
        assert ask(exporter, path).status == 404, path
    assert ask(exporter, "/metrics", "POST").status == 405
    assert ask(exporter, "/-/reload", "GET").status == 405
    assert ask(exporter, "/metrics?name[]=table_queue_up").status == 200


def reloaded(page: Metrics) -> float | None:
    return page.value("exporter_config_last_reload_successful")


def test_a_reload_takes_a_good_file_and_survives_a_bad_one(
    exporter: ExporterProcess, config: str
) -> None:
    first = exporter.metrics()
    assert reloaded(first) == 1
    moment = first.value("exporter_config_last_reload_success_timestamp_seconds")

    exporter.config_file.write_text(config.replace("60s", "90s"))
    exporter.process.send_signal(signal.SIGHUP)
    page = exporter.wait_for(lambda page: page.value("objective_seconds") == 90, "SIGHUP")
    later = page.value("exporter_config_last_reload_success_timestamp_seconds")
    assert later is not None
    assert moment is not None
    assert later > moment

    exporter.config_file.write_text(config.replace("60s", "soon"))
    exporter.process.send_signal(signal.SIGHUP)
    page = exporter.wait_for(lambda page: reloaded(page) == 0, "the bad file to be noticed")
    assert page.value("objective_seconds") == 90, "the last good one goes on"
    assert page.value("exporter_config_last_reload_success_timestamp_seconds") == later
    answer = ask(exporter, "/-/reload", "POST")
    assert answer.status == 500
    assert "queues[0].objective: 'soon' is not a duration" in answer.text
    assert "the last good one stays" in exporter.log()
    wait_until(lambda: exporter.status("/-/ready") == 200, "it to go on")

    polls = exporter.metrics().value("polls_total", queue="payment")
    exporter.config_file.write_text(config)
    answer = ask(exporter, "/-/reload", "POST")
    assert (answer.status, answer.text) == (200, "Reloaded.\n")
    page = exporter.wait_for(lambda page: page.value("objective_seconds") == 60, "the reload")
    assert reloaded(page) == 1
    after = page.value("polls_total", queue="payment")
    assert polls is not None
    assert after is not None
    assert after >= polls, "a counter that steps back reads as a reset"


def test_other_places_and_no_reload_without_leave(newest_server: LocalServer) -> None:
    """One process: a prefix, another path for metrics, no lifecycle, a database that is down."""
    dsn = f"postgresql://u@127.0.0.1:{free_port()}/db"
    config = configuration(dsn, "name: q\ntable: t")
    flags = ("--web.route-prefix=/queues/", "--web.telemetry-path=numbers", "--log.format=json")
    with PrefixedProcess(config, *flags) as exporter:
        assert Metrics(ask(exporter, "/queues/numbers").text).value("database_up") is not None
        page = ask(exporter, "/queues/")
        assert page.status == 200
        for name in ("numbers", "-/healthy", "-/ready"):
            assert f'href="/queues/{name}"' in page.text
            assert ask(exporter, f"/queues/{name}").status in (200, 503)
            assert ask(exporter, f"/{name}").status == 404
        answer = ask(exporter, "/queues/-/reload", "POST")
        assert (answer.status, answer.text) == (
            403,
            "Start with --web.enable-lifecycle for this.\n",
        )
        while ask(exporter, "/queues/-/ready").status == 503:
            pass
        assert ask(exporter, "/queues/-/healthy").status == 200, "a database that is down is no"
        assert "Connection refused" in ask(exporter, "/queues/").text
        assert exporter.stop() == 0
        lines = [json.loads(line) for line in exporter.log().splitlines()]
        assert lines[0]["msg"] == "listening"
        assert lines[0]["address"] == f"127.0.0.1:{exporter.port}"


class PrefixedProcess(ExporterProcess):
    """It answers under a prefix only."""

    def get(self, path: str, **headers: str) -> str:
        return super().get(f"/queues{path}", **headers)


async def test_a_scrape_formats_nothing(config: str, newest_server: LocalServer) -> None:
    exporter = Exporter(
        lambda: parse_config(config.replace("objective", "interval: 1h\n    objective"))
    )
    exporter.start()
    try:
        await until_ready(exporter)
        site = Site(exporter, WebSettings(None, 0))
        async with TestClient(TestServer(site.application())) as client:
            renders = exporter.page.renders
            assert renders > 0
            for number in range(50):
                accept = PROMETHEUS if number % 2 else "*/*"
                async with client.get("/metrics", headers={"Accept": accept}) as response:
                    assert "table_queue_tasks{" in await response.text()
            assert exporter.page.renders == renders, "samples are rendered when polls end"
            for form in Format:
                first, second = exporter.page.body(form), exporter.page.body(form)
                assert first is second, "the very same bytes"
    finally:
        await exporter.stop()
