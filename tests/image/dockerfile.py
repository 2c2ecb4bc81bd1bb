"""Does what a Dockerfile says in bare directories, one for each stage, without an engine."""

import json
import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from dockerfile_parse import DockerfileParser

from tests.support.bare_root import BareRoot

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "Dockerfile"
_PIP = re.compile(r"(PIP_|SSL_|https?_proxy|no_proxy)", re.IGNORECASE)
"""What pip needs to reach a package index on this machine; a build gets it from its engine."""


@dataclass
class Stage:
    """One stage: its directory, and what later instructions and the container go by."""

    base: str
    root: BareRoot
    directory: str = "/"
    user: str = "0:0"
    environment: dict[str, str] = field(default_factory=dict)
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    health: list[str] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)


def instructions() -> list[tuple[str, str]]:
    """Every instruction of the Dockerfile with its value, comments left out."""
    with FILE.open("rb") as file:
        structure = DockerfileParser(fileobj=file).structure
    return [(i["instruction"], i["value"]) for i in structure if i["instruction"] != "COMMENT"]


def context() -> list[str]:
    """The entries that .dockerignore lets through: everything is out, then some are let in."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*", "everything stays out unless it is named"
    return [rule[1:] for rule in rules if rule.startswith("!")]


def build(directory: Path) -> dict[str, Stage]:
    """Carries out every instruction. Returns the stages; the last one is under ``""``."""
    stages: dict[str, Stage] = {}
    stage: Stage | None = None
    arguments: dict[str, str] = {}
    for instruction, value in instructions():
        if instruction == "ARG":
            name, _, default = value.partition("=")
            arguments[name] = default
        elif instruction == "FROM":
            base, _, name = value.partition(" AS ")
            root = BareRoot(directory / str(len(stages)))
            stage = stages[name] = Stage(_filled(base, arguments), root)
        else:
            assert stage is not None
            _apply(stage, stages, instruction, _filled(value, arguments))
    return stages


def _filled(value: str, arguments: dict[str, str]) -> str:
    return re.sub(r"\$\{(\w+)\}", lambda match: arguments[match[1]], value)


def _apply(stage: Stage, stages: dict[str, Stage], instruction: str, value: str) -> None:
    match instruction:
        case "WORKDIR":
            stage.directory = value
            (stage.root.path / value.lstrip("/")).mkdir(parents=True)
        case "COPY":
            _copy(stage, stages, value.split())
        case "RUN":
            pip = {key: v for key, v in os.environ.items() if _PIP.match(key)}
            path = stage.environment.get("PATH", stage.root.search_path)
            script = f"cd {stage.directory} && {value}"
            stage.root.run(["/bin/sh", "-c", script], PATH=path, **pip)
        case "ENV":
            stage.environment |= _pairs(value)
        case "LABEL":
            stage.labels |= _pairs(value)
        case "USER":
            stage.user = value
        case "ENTRYPOINT":
            stage.entrypoint = json.loads(value)
        case "CMD":
            stage.command = json.loads(value)
        case "HEALTHCHECK":
            stage.health = json.loads(value.partition("CMD ")[2])
        case "EXPOSE":
            pass
        case _:
            raise AssertionError(f"the test does not know {instruction}")


def _pairs(value: str) -> dict[str, str]:
    return {
        name: quoted if quoted is not None and quoted != "" else plain
        for name, quoted, plain in re.findall(r'([\w.]+)=(?:"([^"]*)"|(\S+))', value)
    }


def _copy(stage: Stage, stages: dict[str, Stage], words: list[str]) -> None:
    source_root = ROOT
    if words[0].startswith("--from="):
        source_root = stages[words.pop(0).removeprefix("--from=")].root.path
    owner = words.pop(0).removeprefix("--chown=") if words[0].startswith("--chown=") else ""
    *sources, target = words
    for source in sources:
        assert source_root != ROOT or source in context(), f".dockerignore keeps {source} out"
        place = Path(stage.directory) / target
        into = stage.root.path / str(place).lstrip("/")
        found = source_root / source.lstrip("/")
        if found.is_dir():
            ignored = shutil.ignore_patterns("__pycache__") if source_root == ROOT else None
            shutil.copytree(found, into, symlinks=True, dirs_exist_ok=True, ignore=ignored)
        else:
            shutil.copy(found, into / found.name if into.is_dir() else into)
        if owner:
            user, _, group = owner.partition(":")
            os.chown(into, int(user), int(group))
