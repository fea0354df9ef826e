"""Hints: facts of a request that a policy may read before it runs, by columns that few traces have."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np

from workloads.columns.classes import Rule

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True)
class Hints:
    """The hints of a turn's request.

    tenant            the client that the request is of, whose service a fair policy counts; None: one for all
    predicted_tokens  somebody's prediction of the reply's text tokens, such as a model's; None: there is none
    """

    tenant: str | None = None
    predicted_tokens: int | None = None


NO_HINTS = Hints()
HINT_COLUMNS = tuple(field.name for field in fields(Hints))


def rules(columns: Mapping[str, np.ndarray]) -> list[Rule]:
    """Return the rules of the columns, with the turns that break each."""
    tenants, predicted = columns["tenant"], columns["predicted_tokens"]
    odd = [name for name in np.unique(tenants) if name and not _NAME.fullmatch(name)]
    broken = (predicted < 1) | (~np.isnan(predicted) & (predicted != np.floor(predicted)))
    return [
        ("tenant", np.isin(tenants, odd), "must be letters, digits, _ and -, at most 64 characters"),
        ("predicted_tokens", broken, "must be a whole number above 0"),
    ]
