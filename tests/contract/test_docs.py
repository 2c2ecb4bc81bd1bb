"""Documents that say what the code says, and code that keeps to its layers."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

import table_queue_exporter
from docs.generate import EXPRESSION_MEANINGS, PAGES
from table_queue_exporter.access import Access
from table_queue_exporter.config import Config, DatabaseConfig, QueueConfig, parse_config
from table_queue_exporter.metrics import METRICS
from table_queue_exporter.model import EXPRESSIONS, REQUIRED, load_preset, preset_names
from table_queue_exporter.sqltext import check_expression

ROOT = Path(__file__).parents[2]
PACKAGE = Path(table_queue_exporter.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
MOST_LINES = 330


@pytest.mark.parametrize("name", PAGES)
def test_generated_pages_are_fresh(name: str) -> None:
    written = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert written == PAGES[name](), f"docs/{name} is stale: run make generate"


def test_every_metric_is_documented() -> None:
    text = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    for metric in METRICS:
        (row,) = [line for line in text.splitlines() if line.startswith(f"| `{metric.name}` |")]
        cells = [cell.strip() for cell in row.strip("|").split(" | ")]
        assert cells[1] == metric.kind
        assert re.findall(r"`(\w+)`", cells[2]) == list(metric.labels)
        assert cells[3] == metric.help


@pytest.mark.parametrize("settings", [DatabaseConfig, QueueConfig], ids=lambda s: s.__name__)
def test_every_setting_is_explained(settings: type[DatabaseConfig] | type[QueueConfig]) -> None:
    text = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    for name, field in settings.model_fields.items():
        assert f"| `{name}` |" in text, name
        if name not in EXPRESSIONS and name != "attempts_counted_at":
            assert field.description, name
            assert field.description.endswith("."), name
    for name in set(Config.model_fields) - {"databases", "queues"}:
        assert f"| `{name}` |" in text, name


def test_every_expression_is_explained_and_settable() -> None:
    assert list(EXPRESSION_MEANINGS) == list(EXPRESSIONS)
    assert set(EXPRESSIONS) <= set(QueueConfig.model_fields)


def test_tables_in_generated_pages_are_whole() -> None:
    for page in PAGES.values():
        columns = None
        for line in page().splitlines():
            if not line.startswith("|"):
                columns = None
                continue
            count = len(re.findall(r"(?<!\\)\|", line))
            assert columns in (None, count), line
            columns = count


def yaml_blocks() -> list[tuple[str, str]]:
    pages = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"]
    return [
        (page.name, block)
        for page in pages
        for block in re.findall(r"```yaml\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
        if "queues:" in block and "databases:" in block
    ]


@pytest.mark.parametrize("block", yaml_blocks(), ids=lambda block: block[0])
def test_the_examples_in_the_documents_are_valid(block: tuple[str, str], tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    text = re.sub(r"(password|dsn)_file: \S+", rf"\1_file: {secret}", block[1])
    variables = dict.fromkeys(re.findall(r"\$\{(\w+)\}", text), "x")
    assert parse_config(text, block[0], environment=variables).databases


@pytest.mark.parametrize("name", [name for name in preset_names() if name != "none"])
def test_every_preset_is_a_queue(name: str) -> None:
    preset = load_preset(name)
    assert preset.title
    assert preset.checked, "the version of the library that it was compared with"
    assert len(preset.detect) >= 3, "fewer columns tell no table from others"
    assert set(preset.expressions) <= set(EXPRESSIONS)
    assert set(REQUIRED) <= set(preset.expressions)
    for expression in preset.expressions.values():
        for part in [expression] if isinstance(expression, str) else expression:
            check_expression(part)
    assert preset.attempts_counted_at in (None, "claim", "end", "failure")
    if "attempts" in preset.expressions:
        assert preset.attempts_counted_at is not None
    assert set(preset.bounded) <= {access.name.lower() for access in Access}
    names = {metric.name.removeprefix("table_queue_") for metric in METRICS}
    assert {*preset.absent, *preset.unserved} <= names


def test_every_dependency_is_reasoned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    text = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    names = {
        name for row in rows for name in re.findall(r"`([\w-]+)(?:\[\w+\])?`", row.split("|")[1])
    }
    wanted = set()
    for requirement in (r for group in groups for r in group):
        match = re.match(r"[\w-]+", requirement)
        assert match
        assert match[0] == project["name"] or re.search("[<>=]", requirement), "a bound"
        wanted.add(match[0])
    wanted.discard(project["name"])
    assert wanted - names == set(), "each needs its line in docs/dependencies.md"
    assert names - wanted == set(), "a line without its dependency"


# --- the code's layers -------------------------------------------------------------------------


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__") or "table_queue_exporter"


def imports_of(path: Path) -> set[str]:
    """The package's own modules that a module imports, wherever in it; not for types alone."""
    names = {module_name(module) for module in MODULES}
    package = list(path.relative_to(PACKAGE).parent.parts)
    found: set[str] = set()
    tree = ast.parse(path.read_text("utf-8"))
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        candidates: list[str] = []
        if isinstance(node, ast.Import):
            candidates = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                base = package[: len(package) - node.level + 1]
                prefix = ["table_queue_exporter", *base, *(node.module or "").split(".")]
            else:
                prefix = (node.module or "").split(".")
            stem = ".".join(part for part in prefix if part)
            candidates = [stem, *(f"{stem}.{alias.name}" for alias in node.names)]
        for candidate in candidates:
            inner = candidate.removeprefix("table_queue_exporter").lstrip(".")
            if candidate.startswith("table_queue_exporter") and inner in names:
                found.add(inner)
    return found - {module_name(path)}


GRAPH = {module_name(path): imports_of(path) for path in MODULES}


def reached(module: str) -> set[str]:
    """Every module that a module needs, directly or not."""
    seen: set[str] = set()
    left = [module]
    while left:
        new = GRAPH.get(left.pop(), set()) - seen
        seen |= new
        left += new
    return seen


def test_the_graph_was_read() -> None:
    assert {"config", "app", "web"} <= reached("cli")
    assert "sqltext" in GRAPH["model"]


def test_imports_have_no_circle() -> None:
    circles = [module for module in GRAPH if module in reached(module)]
    assert not circles


SQL = {"statements", "server_stats", "inspection", "discovery"}
SERVER = {"postgres", "queue_reader", "poller"}
PAGE = {"store", "publisher", "exposition", "web", "serve", "app", "cli"}
NEVER = {
    "errors": set(GRAPH) - {"errors"},
    "metrics": set(GRAPH) - {"metrics"},
    "durations": set(GRAPH) - {"durations"},
    "sqltext": set(GRAPH) - {"sqltext"},
    "yaml_source": set(GRAPH) - {"yaml_source", "errors"},
    "config": SQL | SERVER | PAGE | {"metrics", "reading"},
    "model": SQL | SERVER | PAGE | {"metrics", "reading", "config"},
    "statements": SERVER | PAGE | {"metrics", "reading", "config", "server_stats", "inspection"},
    "inspection": PAGE | {"queue_reader", "poller"},
    "server_stats": SERVER | PAGE | {"config"},
    "postgres": PAGE | {"queue_reader", "poller", "inspection", "server_stats"},
    "reading": SQL | SERVER | PAGE | {"config", "model"},
    "labels": SQL | SERVER | PAGE | {"config", "model"},
    "queue_reader": PAGE - {"store"} | {"poller"},
    "poller": PAGE - {"store"},
    "store": SQL | SERVER | PAGE - {"store"},
    "exposition": set(GRAPH) - {"exposition", "metrics"},
    "publisher": SQL | SERVER | {"web", "serve", "app", "cli"},
    "app": {"web", "serve", "cli"},
    "web": {"serve", "cli"},
    "serve": {"cli"},
}
"""What a module must not know of, directly or through others: data flows one way."""


@pytest.mark.parametrize("module", NEVER)
def test_each_step_knows_only_what_comes_before_it(module: str) -> None:
    assert module in GRAPH, "a module was renamed: keep its rule"
    known = reached(module) & NEVER[module]
    assert not known - {"table_queue_exporter"}


def test_what_serves_does_not_need_the_demo() -> None:
    served = set().union(*(reached(m) for m in ("serve", "app", "web", "sql_command")))
    assert not [module for module in served if module.startswith("demo")]
    cli = ast.parse((PACKAGE / "cli.py").read_text("utf-8"))
    for node in cli.body:
        if isinstance(node, ast.ImportFrom):
            assert "demo" not in (node.module or ""), "only inside the command that needs it"


TOO_LONG = {"demo.server", "metrics"}
"""Longer than it should be, and why: the server's one class, and the list of all metrics."""


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_no_module_is_too_long_to_be_read(path: Path) -> None:
    lines = len(path.read_text("utf-8").splitlines())
    assert (lines > MOST_LINES) == (module_name(path) in TOO_LONG)


def test_contributing_names_modules_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = re.findall(r"`(\w+)\.py`", text)
    assert len(named) > 10
    assert not [name for name in named if name not in GRAPH]
