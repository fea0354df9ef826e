"""The output of `rehearse profile --from RUNS`: errors of held-out loads first, then of fitted ones, then the
factors."""

from collections.abc import Iterator, Sequence

from engines.devices.step_file import Compared
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
    "client_s_per_reply": "client's path, each reply in progress",
}


def tables(calibration: Calibration) -> list[Table]:
    made = calibration.profile
    factors = [
        (FACTORS[name], _value(name, each.value), _value(name, each.default), each.fitted_to)
        for name, each in made.factors
        if each is not None
    ]
    held_out = "held-out loads: measured means, and errors before and after the fit"
    return [
        _errors(held_out, calibration.held_out, made.held_out),
        _errors("fitted loads", calibration.fitted, made.fitted),
        Table("factors", ("of what", "fitted", "default", "fitted to"), factors),
    ]


def sentences(calibration: Calibration) -> Iterator[str]:
    made, loads = calibration.profile, calibration.profile.range
    yield (
        f"{made.model} on {made.gpus} {made.gpu}, {made.server}: from {loads.lowest_rate:.3g} to "
        f"{loads.highest_rate:.3g} requests a second, {loads.lowest_in_flight:.3g} to {loads.highest_in_flight:.3g} in "
        "flight; outside that a report says that it is extrapolated."
    )
    if calibration.saturated:
        labels = "; ".join(each.label for each in calibration.saturated)
        yield f"Left out, as they are saturated: {labels}."


def _errors(title: str, rows: Sequence[Row], compared: Compared) -> Table:
    shown = []
    for row in rows:
        load = row.load
        latencies = (_latency(load.measured[n], row.before[n], row.after[n]) for n in LATENCIES)
        shown.append((load.label, f"{load.rate:.3g}", f"{load.in_flight:.3g}", *latencies))
    means = (
        f"{percent(getattr(compared.before, name))}  {percent(getattr(compared.after, name))}" for name in LATENCIES
    )
    return Table(title, HEADINGS, [*shown, ("mean absolute", "", "", *means)])


def _latency(measured: float, *predicted: float) -> str:
    """A measured time, and the errors of predictions."""
    if measured <= 0:
        return "not measured"
    return "  ".join([f"{1e3 * measured:.4g}", *(f"{100 * (each / measured - 1):+.1f} %" for each in predicted)])


def _value(name: str, value: float) -> str:
    return f"{value:.4g} x" if name in ("decode", "prompt") else f"{1e3 * value:.4g} ms"
