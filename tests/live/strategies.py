"""What clients may send, drawn by hypothesis."""

from typing import Any

from hypothesis import strategies as st


def some(**fields: Any) -> st.SearchStrategy[dict[str, Any]]:
    """An object with some of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


def typed(kind: str, **fields: Any) -> st.SearchStrategy[dict[str, Any]]:
    """An object of that type with some of these fields."""
    return st.fixed_dictionaries({"type": st.just(kind)}, optional=fields)
