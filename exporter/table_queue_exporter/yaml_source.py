"""A YAML file as plain data, with the line of every key and ``${VAR}`` filled in."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import yaml

from .errors import Problem

YamlPath = tuple[str | int, ...]
_REFERENCE = re.compile(r"\$(?:\$|\{([^}]*)\})")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAMING = re.compile(r"""(undefined alias|the tag|tag handle) ['"][\s\S]*""")


@dataclass
class YamlSource:
    """The data of one YAML file and where each part of it stands.

    ``data`` holds dicts, lists and scalars; ``lines`` maps a path such as
    ``("queues", 0, "lease")`` to its line, counted from 1; ``problems`` lists what was wrong
    with the text itself.
    """

    file: str
    data: object = None
    lines: dict[YamlPath, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def line(self, path: YamlPath) -> int | None:
        """The line of a path, or of the nearest parent that the file holds."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.lines:
                return self.lines[path[:length]]
        return None

    def problem(self, path: YamlPath, message: str) -> Problem:
        """A problem at a path of this file."""
        return Problem(self.file, self.line(path), format_path(path), message)


def format_path(path: YamlPath) -> str:
    """``("queues", 0, "lease")`` as ``queues[0].lease``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


def load_yaml(text: str, file: str, environment: Mapping[str, str] | None = None) -> YamlSource:
    """Reads one YAML document. Never raises for a bad document: see ``problems``.

    ``${VAR}`` in a string value is replaced from the environment, ``$$`` is a dollar sign.
    It is replaced after parsing, so that no character of the value can change the structure.
    """
    source = YamlSource(file)
    loader: yaml.SafeLoader | None = None
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is not None:
            variables = os.environ if environment is None else environment
            source.data = _Builder(source, loader, variables).build(node, ())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = None if mark is None else mark.line + 1
        # A value that begins with * or ! was meant as text, and may be a password.
        reason = _NAMING.sub(
            r"\1; put a value that begins with * or ! into quotes", error.problem or ""
        )
        source.problems.append(Problem(file, line, "", f"not valid YAML: {reason}"))
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        source.problems.append(
            Problem(file, line, "", f"not valid YAML: it holds the character {error.character:#x}")
        )
    except yaml.YAMLError as error:
        source.problems.append(Problem(file, None, "", f"not valid YAML: {error}"))
    finally:
        if loader is not None:
            loader.dispose()
    return source


class _Builder:
    """Turns YAML nodes into data while it notes lines and problems in the source."""

    def __init__(
        self, source: YamlSource, loader: yaml.SafeLoader, variables: Mapping[str, str]
    ) -> None:
        self._source = source
        self._loader = loader
        self._variables = variables
        self._open: set[int] = set()
        self._own: dict[int, list[yaml.Node]] = {}

    def build(self, node: yaml.Node, path: YamlPath) -> object:
        self._source.lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        if id(node) in self._open:
            self._source.problems.append(self._source.problem(path, "holds itself"))
            return None
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, path)
            return [self.build(item, (*path, index)) for index, item in enumerate(node.value)]
        finally:
            self._open.discard(id(node))

    def _scalar(self, node: yaml.ScalarNode, path: YamlPath) -> object:
        try:
            value: object = self._loader.construct_object(node)
        except (ValueError, KeyError, AttributeError):  # 2024-13-45, !!int x, !!bool x
            kind = node.tag.rpartition(":")[2]
            self._source.problems.append(
                self._source.problem(path, f"is not a valid {kind}; put text into quotes")
            )
            return ""
        return self._filled(value, path) if isinstance(value, str) else value

    def _mapping(self, node: yaml.MappingNode, path: YamlPath) -> dict[str, object]:
        own = self._own.setdefault(id(node), [key for key, _ in node.value])
        self._loader.flatten_mapping(node)  # "<<: *anchor"; what it brings stands first
        result: dict[str, object] = {}
        written = set()
        for key_node, value_node in node.value:
            key = self._key(key_node)
            key_path = (*path, key)
            is_own = any(key_node is known for known in own)
            if is_own and key in written:
                self._source.problems.append(
                    Problem(
                        self._source.file,
                        key_node.start_mark.line + 1,
                        format_path(key_path),
                        "is given twice",
                    )
                )
            if is_own:
                written.add(key)
            self._source.lines[key_path] = key_node.start_mark.line + 1
            result[key] = self.build(value_node, key_path)
        return result

    def _key(self, node: yaml.Node) -> str:
        return str(node.value) if isinstance(node, yaml.ScalarNode) else "?"

    def _filled(self, value: str, path: YamlPath) -> str:
        def replace(match: re.Match[str]) -> str:
            name = match.group(1)
            if name is None:
                return "$"
            if not _VARIABLE.fullmatch(name):
                self._source.problems.append(
                    self._source.problem(
                        path, "holds ${…} without a variable's name: write $$ for a dollar sign"
                    )
                )
                return ""
            if name not in self._variables:
                self._source.problems.append(
                    self._source.problem(path, f"the environment variable {name} is not set")
                )
                return ""
            return self._variables[name]

        return _REFERENCE.sub(replace, value)
