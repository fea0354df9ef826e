"""A model by a file of the user's. A point's record keeps the file's content, so it describes the same model when the
file is changed or gone."""

import math
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

from workloads.errors import UserError
from workloads.files.yaml_file import read_yaml

Model = TypeVar("Model")

MAKE = "make it with `rehearse model config.json`"


def is_file(name: str) -> bool:
    """Return True if a model is named by a path: it has a slash, or ends as YAML does."""
    return "/" in name or name.endswith((".yaml", ".yml"))


def content(path: str) -> dict[str, Any]:
    """Return the content of the file. UserError when it cannot be read, or holds no stages."""
    facts = read_yaml(path, MAKE)
    if not isinstance(facts, dict) or not isinstance(facts.get("stages"), dict):
        raise UserError(f"model {path} is none: it has no stages; {MAKE}.")
    return facts


def checked(path: str, facts: dict[str, Any], model: Callable[[str, dict[str, Any]], Model]) -> Model:
    """Return the model that a file holds, named as the file without its ending. `model`: makes it from name and facts.

    UserError when it is not as ours are.
    """
    try:
        loaded = model(Path(path).stem, facts)
        _check(loaded)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        message = str(error).replace("Decoder.__init__() ", "").replace("LatentAttention.__init__() ", "")
        raise UserError(f"model {path} is none: {message}; {MAKE}.") from None
    return loaded


def _check(facts: Any, where: str = "") -> None:
    """Raise ValueError for a number that no model has, in dataclasses of facts."""
    for field in fields(facts):
        name, value = f"{where}{field.name}", getattr(facts, field.name)
        if isinstance(value, dict):
            for key, item in value.items():
                _check(item, f"{name}.{key}.")
        elif is_dataclass(value):
            _check(value, f"{name}.")
        elif value is None or field.name == "name" or (isinstance(value, bool) and field.type is bool):
            continue
        elif field.type is bool:
            if not isinstance(value, bool):
                raise ValueError(f"{name} is {value!r}, and neither true nor false")
        elif isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{name} is {value!r}, and no number")
        elif not 0 <= value < math.inf or (field.type is int and not isinstance(value, int)):
            raise ValueError(f"{name} is {value!r}, and no number that a model has there")
        elif not value and field.name in _NEEDED and "code_predictor" not in where:
            raise ValueError(f"{name} is 0, and a model has some")
    if hasattr(facts, "kv_heads"):
        _check_decoder(facts, where)


def _check_decoder(decoder: Any, where: str) -> None:
    if decoder.heads and not decoder.kv_heads:
        raise ValueError(f"{where}kv_heads is 0, and a model with heads has some")
    if decoder.heads and decoder.heads % decoder.kv_heads:
        raise ValueError(f"{where}kv_heads is {decoder.kv_heads}, which does not divide the {decoder.heads} heads")
    if decoder.dtype_bytes not in (2, 4):
        raise ValueError(f"{where}dtype_bytes is {decoder.dtype_bytes}, and numbers have 2 or 4")
    if decoder.weight_dtype_bytes > 4:
        raise ValueError(f"{where}weight_dtype_bytes is {decoder.weight_dtype_bytes}, and numbers have up to 4")
    if decoder.experts_per_token > decoder.experts:
        raise ValueError(f"{where}experts_per_token is more than the {decoder.experts} experts")
    if decoder.dense_layers > decoder.layers:
        raise ValueError(f"{where}dense_layers is more than the {decoder.layers} layers")
    if not (decoder.ffn or decoder.expert_ffn):
        raise ValueError(f"{where}ffn is 0, and there are no experts with expert_ffn")


_NEEDED = ("layers", "hidden", "heads", "kv_heads", "head_dim", "dtype_bytes", "vocab")
