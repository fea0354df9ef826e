"""The tokens of each routed expert in a step: sampled from a popularity that may drift, or from a recording.

A *routing trace* is a Parquet file with a row for each step, layer and expert that got tokens, in the columns `step`,
`layer`, `expert` and `tokens`, all integers from 0 on.
"""

from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from workloads.errors import UserError, existing_file
from workloads.files.packed import NO_PARQUET, read_parquet
from workloads.seeds import stream

COLUMNS = ("step", "layer", "expert", "tokens")

PROFILED_TOKENS = 2**20
"""[chosen] tokens of a sampled load's history: enough to average chance out."""


class ExpertLoad(Protocol):
    """The load of the experts. (L, E): MoE layers, routed experts of one layer."""

    @property
    def shape(self) -> tuple[int, int]: ...

    def draw(self, now_s: float, tokens: int) -> np.ndarray:
        """Return the (L, E) counts of a step of `tokens` tokens at `now_s`; every row sums to tokens times experts per
        token."""
        ...

    def history(self) -> np.ndarray:
        """Return the (L, E) counts of a long time before, for a first placement."""
        ...


def zipf(experts: int, exponent: float, per_token: int) -> np.ndarray:
    """Return shares of the experts by rank, (E,), falling as rank ** -exponent and summing to 1.

    A token goes to `per_token` different experts, so none has more than 1 / `per_token` of all: the excess goes to the
    others in proportion.
    """
    shares = np.arange(1, experts + 1) ** -float(exponent)
    shares /= shares.sum()
    most = 1 / per_token
    while shares.max() > most * (1 + 1e-12):
        full = shares >= most
        shares = np.where(full, most, shares * (1 - most * full.sum()) / shares[~full].sum())
    return shares


class SampledLoad:
    """Popularity by Zipf, with new ranks in each layer, and counts that are multinomial in each step.

    With `drift_s` the popularity moves: within that time `drift_share` of each layer's experts change their ranks among
    each other, and every share moves on a straight line from the old to the new. Tokens choose independently of each
    other, and experts in proportion to their shares. The streams are `stream`'s of `seed`.
    """

    def __init__(
        self,
        layers: int,
        experts: int,
        per_token: int,
        exponent: float,
        seed: int,
        drift_s: float | None = None,
        drift_share: float = 0.25,
    ) -> None:
        self.shape = (layers, experts)
        self.per_token = per_token
        self.drift_s, self.drift_share = drift_s, drift_share
        self._seed, self._counts = seed, stream(seed, "expert counts")
        ranked = np.tile(zipf(experts, exponent, per_token), (layers, 1))
        self._epochs = [stream(seed, "expert popularity").permuted(ranked, axis=1)]

    def popularity(self, now_s: float) -> np.ndarray:
        """Return the (L, E) shares at `now_s` >= 0, each row summing to 1."""
        if self.drift_s is None:
            return self._epochs[0]
        epoch, gone = divmod(now_s / self.drift_s, 1)
        while len(self._epochs) < epoch + 2:
            self._epochs.append(self._next(len(self._epochs)))
        before, after = self._epochs[int(epoch) : int(epoch) + 2]
        return before + gone * (after - before)

    def _next(self, epoch: int) -> np.ndarray:
        rng, shares = stream(self._seed, f"expert drift {epoch}"), self._epochs[-1].copy()
        count = round(self.drift_share * self.shape[1])
        for row in shares:
            moved = rng.choice(len(row), count, replace=False)
            row[moved] = row[rng.permutation(moved)]
        return shares

    def draw(self, now_s: float, tokens: int) -> np.ndarray:
        return self._counts.multinomial(tokens * self.per_token, self.popularity(now_s))

    def history(self) -> np.ndarray:
        return self.popularity(0.0) * (PROFILED_TOKENS * self.per_token)


class RecordedLoad:
    """The steps of a routing trace, (S, L, E) counts, one after the other and again from the first.

    A step with the recorded number of tokens has its counts; any other draws from its shares.
    """

    def __init__(self, steps: np.ndarray, per_token: int, seed: int) -> None:
        self.shape = (steps.shape[1], steps.shape[2])
        self.per_token = per_token
        self._steps, self._next, self._counts = steps, 0, stream(seed, "expert counts")

    def draw(self, now_s: float, tokens: int) -> np.ndarray:
        recorded = self._steps[self._next % len(self._steps)]
        self._next += 1
        sums = recorded.sum(axis=1, keepdims=True)
        if (sums == tokens * self.per_token).all():
            return recorded
        return self._counts.multinomial(tokens * self.per_token, recorded / sums)

    def history(self) -> np.ndarray:
        return self._steps.sum(axis=0)


def write_routing(path: Path | str, steps: np.ndarray) -> None:
    """Write (S, L, E) counts as a routing trace."""
    indices = np.nonzero(steps)
    columns = dict(zip(COLUMNS, (*indices, steps[indices]), strict=True))
    pq.write_table(pa.table({name: pa.array(values, pa.int32()) for name, values in columns.items()}), path)


def read_routing(path: Path | str, layers: int, experts: int) -> np.ndarray:
    """Read the (S, L, E) counts of a routing trace of a model of L MoE layers with E experts each.

    Steps without rows are left out. UserError for a file that is no routing trace, or one of another model.
    """
    path = existing_file(path)
    try:
        table = read_parquet(path)
    except NO_PARQUET:
        raise UserError(f"{path} is no Parquet file; give a routing trace with {_columns()}.") from None
    values = {name: _integers(path, table, name) for name in COLUMNS}
    if not table.num_rows:
        raise UserError(f"{path} has no rows; give a routing trace with at least one step.")
    for name, limit in (("layer", layers), ("expert", experts)):
        if (largest := values[name].max()) >= limit:
            raise UserError(
                f"{path}: column {name!r} has {largest}, but the model has {limit} of them, numbered from 0; "
                "give a trace of this model."
            )
    steps, index = np.unique(values["step"], return_inverse=True)
    counts = np.zeros((len(steps), layers, experts), np.int64)
    np.add.at(counts, (index, values["layer"], values["expert"]), values["tokens"])
    if not (sums := counts.sum(axis=2)).all():
        step, layer = np.argwhere(sums == 0)[0]
        raise UserError(f"{path}: step {steps[step]} has no tokens in layer {layer}; record every layer.")
    return counts


def _integers(path: Path, table: pa.Table, name: str) -> np.ndarray:
    if name not in table.column_names:
        raise UserError(f"{path} lacks the column {name!r}; a routing trace has {_columns()}.")
    column = table.column(name)
    if not pa.types.is_integer(column.type) or column.null_count:
        kind = f"{column.null_count} missing values" if column.null_count else f"type {column.type}"
        raise UserError(f"{path}: column {name!r} has {kind}; it should be whole numbers.")
    values = column.to_numpy()
    if len(values) and values.min() < 0:
        raise UserError(f"{path}: column {name!r} has {values.min()}; it should be 0 or more.")
    return values


def _columns() -> str:
    return "the columns " + ", ".join(COLUMNS[:-1]) + f" and {COLUMNS[-1]}"
