"""The output of `rehearse profile --from RUNS`: errors of held-out loads first, then of fitted ones, then the
factors."""

from collections.abc import Iterator, Sequence

from engines.devices.calibrated import Compared
from harness.calibration.fidelity_report import percent
from harness.measured_runs.calibrate import Calibration, Row
from harness.measured_runs.measured_run import LATENCIES
from reports.tables.plain_tables import Table

TITLES = {"ttft": "TTFT", "itl": "time between tokens", "e2e": "E2E"}
HEADINGS = ("load", "requests/s", "in flight", *(f"{TITLES[name]}: ms, before, after" for name in LATENCIES))
FACTORS = {
    "decode": "kernels of steps of decodes alone",
    "prompt": "kernels of steps with prompts",
    "host_s": "host, a step",
    "host_s_per_request": "host, each request of a step",
    "client_s": "client's path, a request",
}


def tables(found: Calibration) -> list[Table]:
    made = found.profile
    factors = [
        (FACTORS[name], _value(name, each.value), _value(name, each.default), each.fitted_to)
        for name, each in made.factors
    ]
    return [
        _errors(
            "held-out loads: measured means, and errors before and after the fit",
            found.held_out,
            made.held_out,
        ),
        _errors("fitted loads", found.fitted, made.fitted),
        Table("factors", ("of what", "fitted", "default", "fitted to"), factors),
    ]


def sentences(found: Calibration) -> Iterator[str]:
    made, loads = found.profile, found.profile.range
    yield (
        f"{made.model} on {made.gpus} {made.gpu}, {made.server}: from {loads.lowest_rate:.3g} to "
        f"{loads.highest_rate:.3g} requests a second, {loads.lowest_in_flight:.3g} to {loads.highest_in_flight:.3g} in "
        "flight; outside that a report says that it is extrapolated."
    )
    if found.saturated:
        labels = "; ".join(each.label for each in found.saturated)
        yield f"Left out, as they are saturated: {labels}."


def _errors(title: str, rows: Sequence[Row], compared: Compared) -> Table:
    shown = [
        (
            row.load.label,
            f"{row.load.rate:.3g}",
            f"{row.load.in_flight:.3g}",
            *(
                f"{1e3 * row.load.measured[name]:.4g}  {_signed(row, row.before[name], name)}  "
                f"{_signed(row, row.after[name], name)}"
                if row.load.measured[name] > 0
                else "not measured"
                for name in LATENCIES
            ),
        )
        for row in rows
    ]
    means = (
        f"{_error(getattr(compared.before, name))}  {_error(getattr(compared.after, name))}"
        for name in LATENCIES
    )
    return Table(title, HEADINGS, [*shown, ("mean absolute", "", "", *means)])


def _error(share: float | None) -> str:
    return "–" if share is None else percent(share)


def _signed(row: Row, predicted: float, name: str) -> str:
    return f"{100 * (predicted / row.load.measured[name] - 1):+.1f} %"


def _value(name: str, value: float) -> str:
    return f"{value:.4g} x" if name in ("decode", "prompt") else f"{1e3 * value:.4g} ms"
