"""YAML files: our own as they are; a user's file without silent surprises, or an error with the line."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from yaml.constructor import ConstructorError

from workloads.bounds import MOST_INTEGER
from workloads.errors import UserError, existing_file, printable

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml, where PyYAML has it, reads nine times as fast."""

_CONVERTED = {f"tag:yaml.org,2002:{kind}" for kind in ("int", "float", "bool", "null", "timestamp", "binary")}

_PLAIN = {"tag:yaml.org,2002:int": re.compile(r"[-+]?(0|[1-9][0-9]*)"), "tag:yaml.org,2002:float": re.compile("[^_:]+")}
"""Numbers that YAML 1.1 reads as people do."""

MOST_DEPTH = 100
"""Lists and mappings within each other: [chosen] our deepest file has 8. libyaml's loader recurses without a limit, so
a deeper one could end the process."""
_LEADING = re.compile(r"^[ ?:-]*", re.MULTILINE)

MOST_VALUES = 1_000_000
"""Values of a document, each counted as often as its anchor is used: [chosen] a hundred times our longest file. A few
lines of anchors would else stand for more values than any memory holds."""


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
    except yaml.YAMLError as error:
        raise UserError(f"{path} is not valid YAML{fault(error)}; {fix}.") from None


def parse_yaml(text: str) -> Any:
    """Return the content of `text`. yaml.YAMLError for text that is not YAML, a key that stands twice in a mapping
    (PyYAML would keep the last), a value that its type does not have, such as month 13, and a number that YAML 1.1
    reads in another way than people: 010 is 8, and 1:30 is 90."""
    try:
        loader = _Loader(text)
    except UnicodeEncodeError:  # half of a character, as the shell hands on bytes that are no text
        raise yaml.YAMLError("it holds bytes that are no text") from None
    try:
        _check_depth(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _check_size(node)
        for child in _nodes(node):
            if isinstance(child, yaml.MappingNode):
                _check_keys(child)
            elif isinstance(child, yaml.ScalarNode) and child.tag in _CONVERTED:
                _check_scalar(loader, child)
        return loader.construct_document(node)
    finally:
        loader.dispose()


def fault(error: yaml.YAMLError) -> str:
    """Return place and fault, to follow "is not valid YAML"."""
    mark = getattr(error, "problem_mark", None)
    where = f", line {mark.line + 1}" if mark else ""
    return f"{where}: {getattr(error, 'problem', None) or str(error).splitlines()[0]}"


def _nodes(root: yaml.Node) -> Iterator[yaml.Node]:
    """Yield all nodes below `root`, each once: an anchor may refer to a node that contains it."""
    pending, seen = [root], set()
    while pending:
        node = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        if isinstance(node, yaml.MappingNode):
            pending += [child for pair in reversed(node.value) for child in reversed(pair)]
        elif isinstance(node, yaml.SequenceNode):
            pending += reversed(node.value)


def _check_depth(text: str) -> None:
    """YAMLError for a document that is nested deeper than `MOST_DEPTH`. It is parsed for that only if it could be."""
    if text.count("[") + text.count("{") + max(map(len, _LEADING.findall(text))) <= MOST_DEPTH:
        return
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MOST_DEPTH:
            raise yaml.YAMLError("it is nested too deep")


def _check_size(root: yaml.Node) -> None:
    """YAMLError for a document of more than `MOST_VALUES`, or one that contains itself."""
    sizes: dict[int, int] = {}

    def size(node: yaml.Node) -> int:
        if id(node) not in sizes:
            sizes[id(node)] = MOST_VALUES  # until it is known: a node that contains itself has no end
            parts = node.value if isinstance(node, yaml.CollectionNode) else ()
            pairs = isinstance(node, yaml.MappingNode)
            sizes[id(node)] = 1 + sum(size(each) for part in parts for each in (part if pairs else (part,)))
        return sizes[id(node)]

    if size(root) > MOST_VALUES:
        raise yaml.YAMLError(f"with its anchors it holds more than {MOST_VALUES:,} values")


def _check_scalar(loader: Any, node: yaml.ScalarNode) -> None:
    kind = node.tag.rpartition(":")[2]
    problem = ""
    try:
        read = loader.construct_object(node)
        large = isinstance(read, int) and abs(read) > MOST_INTEGER
        if not large and node.tag in _PLAIN and not _PLAIN[node.tag].fullmatch(node.value):
            problem = f"{printable(node.value, 40)} would be read as {read}; write {read}, or put quotes around it"
    except (AttributeError, LookupError, ValueError):  # PyYAML's own, of a value that its type does not have
        large = kind == "int" and len(node.value) > len(str(MOST_INTEGER))
        problem = f"{printable(node.value, 40)} is no {kind}; correct it, or put quotes around it"
    if large:
        problem = f"{printable(node.value, 40)} is too large; write a whole number of at most {MOST_INTEGER}"
    if problem:
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
