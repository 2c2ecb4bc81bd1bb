"""Log lines, written by a process of their own to a real standard error."""

import json
import re
import subprocess
import sys

import pytest

PAIR = re.compile(r'([^\s="]+)=(?:"((?:[^"\\]|\\.)*)"|([^\s"]*))(?: |$)')
ESCAPES = {"n": "\n", '"': '"', "\\": "\\"}


def write(script: str, *, form: str = "logfmt", level: str = "info") -> list[str]:
    """The lines that a script logs; ``log`` and ``redact`` are there."""
    head = (
        "import structlog\n"
        "from table_queue_exporter.logs import *\n"
        f"configure_logging(LogLevel({level!r}), LogFormat({form!r}))\n"
        "log = structlog.get_logger()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", head + script], capture_output=True, text=True, check=True
    )
    assert done.stdout == ""
    return done.stderr.splitlines()


def logfmt(line: str) -> dict[str, str]:
    """Parses one line strictly: nothing may be left over between the pairs."""
    found, position = {}, 0
    while position < len(line):
        match = PAIR.match(line, position)
        assert match, f"not logfmt at {line[position:]!r}"
        key, quoted, bare = match.groups()
        if quoted is not None:
            quoted = re.sub(r"\\(.)", lambda m: ESCAPES.get(m[1], m[0]), quoted)
        found[key] = bare if quoted is None else quoted
        position = match.end()
    return found


NASTY = ["plain", "two words", 'a "quote"', 'q"uote', "k=v", "back\\slash here\\", "", "ü 🚚"]


def test_lines_come_back_from_both_formats() -> None:
    script = f"for value in {NASTY!r}: log.warning('said \"so\"', error=value, count=3)"
    lines = write(script)
    assert [logfmt(line)["error"] for line in lines] == NASTY
    for found in map(logfmt, lines):
        assert found["msg"] == 'said "so"'
        assert (found["level"], found["count"]) == ("warning", "3")
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", found["ts"])
        assert list(found)[:3] == ["ts", "level", "msg"]
    lines = write(script, form="json")
    assert [json.loads(line)["error"] for line in lines] == NASTY
    assert json.loads(lines[0])["count"] == 3


def test_newlines_and_control_characters_stay_in_one_line() -> None:
    script = "log.info('x', error='a\\nb c\\t\\rd\\x1b[31m')"
    (line,) = write(script)
    assert line.isprintable()
    assert logfmt(line)["error"] == "a\nb c\\t\\rd\\x1b[31m"
    (line,) = write(script, form="json")
    assert json.loads(line)["error"] == "a\nb c\t\rd\x1b[31m"


def test_levels_hold_back_what_is_below() -> None:
    script = "log.debug('d'); log.info('i'); log.warning('w'); log.error('e')"
    counts = {
        level: len(write(script, level=level)) for level in ("debug", "info", "warn", "error")
    }
    assert counts == {"debug": 4, "info": 3, "warn": 2, "error": 1}


SECRETS = ["hunter2", "p@ss/w:r#d?", 'it\'s "quoted" \\ here', "pä🚚ß", "with space", "a=b&c"]


@pytest.mark.parametrize("form", ["logfmt", "json"])
def test_secrets_are_taken_out_wherever_they_stand(form: str) -> None:
    script = (
        f"for secret in {SECRETS!r}:\n"
        "    redact.add([secret, ''])\n"
        "    log.info('with ' + secret, error='x' + secret + 'y', other=ValueError(secret))\n"
        "    try:\n"
        "        raise RuntimeError('cannot use ' + secret)\n"
        "    except RuntimeError:\n"
        "        log.exception('failed')\n"
    )
    lines = write(script, form=form)
    assert len(lines) == 2 * len(SECRETS)
    for index, secret in enumerate(SECRETS):
        for line in lines[2 * index : 2 * index + 2]:
            fields = json.loads(line) if form == "json" else logfmt(line)
            assert not any(secret in value for value in fields.values()), line
        first, second = lines[2 * index : 2 * index + 2]
        assert first.count("<redacted>") == 3
        assert "cannot use <redacted>" in second, "the rest of the traceback stays"


def test_the_longer_secret_goes_first() -> None:
    (line,) = write("redact.add(['abc', 'abcdef']); log.info('x', error='abcdef abc')")
    assert logfmt(line)["error"] == "<redacted> <redacted>"
