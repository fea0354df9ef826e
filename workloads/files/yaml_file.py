"""YAML files: our own as they are; a user's file without silent surprises, or an error with the line."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from yaml.constructor import ConstructorError

from workloads.errors import UserError, existing_file

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml, where PyYAML has it, reads nine times as fast."""

_PLAIN = {
    "tag:yaml.org,2002:int": re.compile(r"[-+]?(0|[1-9][0-9]*)"),
    "tag:yaml.org,2002:float": re.compile("[^_:]+"),
}
"""Numbers that YAML 1.1 reads as people do."""


def shipped_yaml(path: Any) -> Any:
    """Return the content of a file of ours: a path, or a resource of a package."""
    return yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)


def read_yaml(path: str | Path, fix: str = "correct it") -> Any:
    """Return the content of a file; UserError, which ends with `fix`, when it cannot be read or is not YAML."""
    path = existing_file(path)
    try:
        return parse_yaml(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read as text: {error}; {fix}.") from None
    except RecursionError:
        raise UserError(f"{path} is not valid YAML: it is nested too deep; {fix}.") from None
    except yaml.YAMLError as error:
        raise UserError(f"{path} is not valid YAML{said(error)}; {fix}.") from None


def parse_yaml(text: str) -> Any:
    """Return the content of `text`. yaml.YAMLError for a key that stands twice in a mapping (PyYAML would keep the
    last), and for a number that YAML 1.1 reads in another way than people: 010 is 8, and 1:30 is 90."""
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        for each in _nodes(node):
            if isinstance(each, yaml.MappingNode):
                _check_keys(each)
            elif isinstance(each, yaml.ScalarNode):
                _check_number(loader, each)
        return loader.construct_document(node)
    finally:
        loader.dispose()


def said(error: yaml.YAMLError) -> str:
    """Return place and fault, to follow "is not valid YAML"."""
    mark = getattr(error, "problem_mark", None)
    where = f", line {mark.line + 1}" if mark else ""
    return f"{where}: {getattr(error, 'problem', None) or str(error).splitlines()[0]}"


def _nodes(root: yaml.Node) -> Iterator[yaml.Node]:
    """Yield all nodes below `root`, each once: an anchor may refer to a node that contains it."""
    left, seen = [root], set()
    while left:
        node = left.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        if isinstance(node, yaml.MappingNode):
            left += [each for pair in reversed(node.value) for each in reversed(pair)]
        elif isinstance(node, yaml.SequenceNode):
            left += reversed(node.value)


def _check_number(loader: Any, node: yaml.ScalarNode) -> None:
    if node.tag in _PLAIN and not _PLAIN[node.tag].fullmatch(node.value):
        read = loader.construct_object(node)
        problem = f"{node.value} would be read as {read}; write {read}, or put quotes around it"
        raise ConstructorError(None, None, problem, node.start_mark)


def _check_keys(mapping: yaml.MappingNode) -> None:
    lines: dict[tuple[str, str], int] = {}
    for key, _ in mapping.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        name, line = (key.tag, key.value), key.start_mark.line + 1
        if name in lines:
            problem = f"{key.value!r} stands on line {lines[name]} already"
            raise ConstructorError(None, None, problem, key.start_mark)
        lines[name] = line
