from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import refused
from workloads.bounds import MOST_INTEGER
from workloads.files.yaml_file import parse_yaml, read_yaml

KEYS = st.text("abcde: 1", min_size=1, max_size=4)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-MOST_INTEGER, MOST_INTEGER) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(VALUES, st.booleans())
def test_yaml_is_read_as_pyyaml_reads_it(value: object, flow: bool) -> None:
    text = yaml.safe_dump(value, default_flow_style=flow)
    assert parse_yaml(text) == value == yaml.safe_load(text)


@given(st.dictionaries(KEYS, st.integers(), min_size=1, max_size=6), st.data())
def test_a_key_that_stands_twice_is_refused_by_name_and_line(values: dict[str, int], data: st.DataObject) -> None:
    lines = yaml.safe_dump(values, default_style='"').splitlines()
    again = data.draw(st.integers(0, len(lines) - 1))
    lines.insert(data.draw(st.integers(again + 1, len(lines))), lines[again])
    second = max(i for i, line in enumerate(lines) if line == lines[again])
    with pytest.raises(yaml.YAMLError) as found:
        parse_yaml("\n".join(lines))
    mark = found.value.problem_mark  # type: ignore[attr-defined]
    assert mark.line == second and f"line {again + 1}" in str(found.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: a\nset: {c: 1}\nname: b\n", ("line 3", "'name'", "line 1 already")),
        ("grid:\n  c: [1]\n  p: [0]\n  c: [2]\n", ("line 4", "'c'", "line 2")),
        ("{a: 1, a: 2}", ("line 1", "'a'")),
        ("a: [", ("line 2",)),
    ],
)
def test_an_error_in_yaml_is_named_with_its_line(tmp_path: Path, text: str, words: tuple[str, ...]) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with refused(f"{path} is not valid YAML", "; correct it.", *words):
        read_yaml(path)


@pytest.mark.parametrize("text", ["0", "-12", "+7", "1.5", "01.5", "1.0e-05", ".inf", "'010'", "'1:30'", "a_1", "1:3a"])
def test_numbers_are_read_as_pyyaml_reads_them(text: str) -> None:
    assert parse_yaml(text) == yaml.safe_load(text)


def test_a_merge_may_be_overridden_and_keys_of_other_types_are_others() -> None:
    nested = "p: {b: &b {<<: &a {x: 1}, x: 2}}\nc: {<<: *b, y: 3}\n"
    assert parse_yaml(nested) == {"p": {"b": {"x": 2}}, "c": {"x": 2, "y": 3}}
    assert parse_yaml("1: a\n'1': b\n") == {1: "a", "1": "b"}
    assert parse_yaml("") is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("9223372036854775808", "too large; write a whole number of at most 9223372036854775807"),
        ("-" + "9" * 19, "too large"),
        ("0x" + "f" * 5000, "too large"),
        ("1:" * 3000 + "1", "too large"),
        ("2026-13-45", "is no timestamp"),
        ("!!int ''", "is no int"),
        ("!!float 1_0:x", "is no float"),
        ("!!bool maybe", "is no bool"),
        ("[" * 50_000, "nested too deep"),
        ("{a: " * 50_000, "nested too deep"),
        ("\n".join(" " * i + "a:" for i in range(200)), "nested too deep"),
        ("&a [*a]", "more than 1,000,000 values"),
        ("\udcff", "bytes that are no text"),
    ],
)
def test_a_value_outside_its_type_or_too_large_is_refused(text: str, words: str) -> None:
    with pytest.raises(yaml.YAMLError, match=words) as found:
        parse_yaml(text)
    assert len(str(found.value)) < 400


def test_anchors_that_expand_beyond_memory_are_refused() -> None:
    lines = ["x0: &x0 [a]", *(f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 10)}]" for i in range(1, 12))]
    with pytest.raises(yaml.YAMLError, match="more than 1,000,000 values"):
        parse_yaml("\n".join(lines))
    assert parse_yaml("\n".join(lines[:4]))["x3"][9][9][9] == ["a"]
