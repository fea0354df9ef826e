"""Our number beside a published one: what the same question gives here."""

from collections.abc import Mapping
from statistics import median

from reports.claims.paper import Published
from reports.runs.measured import Run, Variant, over_seeds


def ours(
    entry: Published, run: Run, read_off: Mapping[str, Mapping[Variant, float]]
) -> dict[Variant, float | None]:
    """Our median over seeds for each variant; None where the run has no such point.

    `read_off` holds the numbers that pictures found: name -> variant -> value.
    """
    if entry.quantity in read_off:
        return {variant: read_off[entry.quantity].get(variant) for variant in run.variants}
    return {variant: _ours(entry, run, variant) for variant in run.variants}


def _ours(entry: Published, run: Run, variant: Variant) -> float | None:
    found: list[float] = []
    for cell in run.cells:
        points = [point for point in run.at(variant, **entry.setting) if point.cell == cell]
        value = over_seeds(points, entry.quantity).median
        if value is not None:
            found.append(value)
    if not found:
        return None
    return max(found) if entry.largest else median(found)
