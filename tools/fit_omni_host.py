"""Fit host times of vLLM-Omni's dated servers (engines/deployments/qwen3_omni_2gpu*.yaml) to public runs.

    python -m tools.fit_omni_host [--rounds N]

Prints loads that are held out with the present values, then fits the constants of `UNKNOWN` to the loads that card
voice-truth marks as fitted: Gauss-Newton on logarithms, one seed. Code2wav's seconds come from `talker_h100.yaml`.
"""

import argparse
from concurrent.futures import Executor, ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engines.core.device import Row
from engines.deployments import load_deployment
from engines.deployments.changes import constants, write_scale
from engines.devices.hardware import load_gpu
from engines.devices.kernels.choose import fitting, steps_of
from engines.devices.roofline import Work
from harness.by_device import override
from harness.replays.expand import expand
from harness.replays.worker.measure import measure
from reports.papers.voice.truth import EXPERIMENTS, PAPER
from workloads.files.yaml_file import read_yaml

AUGUST, JULY, JUNE, MAY = (f"qwen3_omni_2gpu{month}" for month in ("", "_july", "_june", "_may"))
MEASURED = Path(__file__).with_name("talker_h100.yaml")
COLUMNS = {"rtf": "rtf", "ttft": "ttft_s", "tbt": "tbt_mean_s"}


class Unknown(NamedTuple):
    """One constant of some servers, which share its value."""

    name: str
    servers: tuple[str, ...]


UNKNOWN = [
    Unknown("talker.host_s", (AUGUST, JULY)),
    Unknown("fetch_s", (AUGUST, JULY)),
    Unknown("talker.host_s_per_request", (AUGUST,)),
    Unknown("talker.host_s_per_request", (JULY, JUNE)),
    Unknown("talker.host_s", (JUNE,)),
    Unknown("thinker.host_s_per_state", (AUGUST, JULY)),
    Unknown("thinker.host_s_per_state", (JUNE,)),
    Unknown("talker.host_s", (MAY,)),
    Unknown("talker.host_s_per_request", (MAY,)),
    Unknown("thinker.host_s", (MAY,)),
    Unknown("thinker.host_s_per_request", (MAY,)),
]


class Load(NamedTuple):
    """A measured value of a server with `c` requests at once."""

    server: str
    name: str
    c: int
    measured: float


def loads(fitted: bool) -> list[Load]:
    return [
        Load(run["server"], name, c, value)
        for run in PAPER
        if run["server"].startswith(AUGUST)
        for name, values in run["values"].items()
        if name in COLUMNS
        for c, value in values.items()
        if (c in run["fitted"].get(name, [])) == fitted
    ]


Replayed = tuple[str, int, str, bool]
"""A replay: server, requests at once, factors on constants, and whether it is short: a quarter of the requests with a
quarter of the reply, which show what a constant changes."""


def means(replayed: Replayed) -> dict[str, float]:
    """Return the mean of each column over the requests of a replay."""
    server, c, scale, short = replayed
    changes: dict[str, object] = {"deployment": server, **({"scale": f"'{scale}'"} if scale else {})}
    if short:
        changes |= {"requests": c, "reply_tokens": 225, "max_reply_tokens": 225}
    [point] = expand(override(EXPERIMENTS[f"c={c}"], changes, seeds=1))
    requests: Any = measure(point).requests
    return {name: float(requests[column].mean()) for name, column in COLUMNS.items()}


def errors(workers: Executor, rows: list[Load], trials: list[np.ndarray], short: bool = False) -> np.ndarray:
    """Return the logarithm of predicted over measured, (T, R), of each load with each trial's factors."""
    replays = [
        (load.server, load.c, write_scale(_of(load.server, factors)), short) for factors in trials for load in rows
    ]
    found = dict(zip(distinct := [*dict.fromkeys(replays)], workers.map(means, distinct), strict=True))
    predicted = [found[each][load.name] for each, load in zip(replays, rows * len(trials), strict=True)]
    return np.log(np.reshape(predicted, (len(trials), -1)) / [load.measured for load in rows])


def _of(server: str, factors: np.ndarray) -> dict[str, float]:
    pairs = zip(UNKNOWN, factors, strict=True)
    return {unknown.name: float(factor) for unknown, factor in pairs if server in unknown.servers and factor != 1}


def show(rows: list[Load], found: np.ndarray) -> None:
    for load, error in zip(rows, found, strict=True):
        values = f"{load.measured:.4f} / {load.measured * np.exp(error):.4f} ({np.expm1(error):+.1%})"
        print(f"{load.server:20} {load.name:4} c={load.c:<2} {values}", flush=True)


def code2wav() -> None:
    """Print the vocoder's `host_s` and `decoder_s_per_frame`: least squares of relative errors on `MEASURED`, less the
    modelled layers, of code2wav as CUDA graphs and with kernels launched one by one."""
    stage, gpu = load_deployment(AUGUST).stages["vocoder"], load_gpu("h100")
    found = fitting("qwen3_omni_30b_a3b", "vocoder", stage.decoder, gpu.name, 1)
    assert found is not None
    steps, measured = steps_of(stage, gpu, found[1]), read_yaml(str(MEASURED))["code2wav"]
    assert steps is not None
    frames = np.array(list(measured), float)
    layers_s = [steps.layer_s(Work.of([Row("", count, 0, True)])) * stage.decoder.layers for count in measured]
    columns = np.stack([np.ones_like(frames), frames], axis=1)
    for kind in ("graph_s", "wall_s"):
        seconds = np.array([times[kind] for times in measured.values()])
        values, *_ = np.linalg.lstsq(columns / seconds[:, None], 1 - layers_s / seconds)
        print(f"code2wav, {kind}: {values[0]:.2g} s and {values[1]:.2g} s a frame;", columns @ values + layers_s)


def main() -> None:
    """Print held-out errors, the fit round by round, and the values."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    factors, rows, held_out = np.ones(len(UNKNOWN)), loads(fitted=True), loads(fitted=False)
    code2wav()
    with ProcessPoolExecutor() as workers:
        show(held_out, errors(workers, held_out, [factors])[0])
        for _ in range(rounds):
            [error] = errors(workers, rows, [factors])
            show(rows, error)
            base, *changed = errors(workers, rows, [factors, *factors * (1 + 0.1 * np.eye(len(factors)))], short=True)
            slopes = (np.array(changed) - base).T / np.log(1.1)
            factors = factors * np.exp(np.linalg.lstsq(slopes, -error)[0])
            for unknown, factor in zip(UNKNOWN, factors, strict=True):
                value = constants(load_deployment(unknown.servers[0]))[unknown.name]
                print(
                    f"{unknown.name} of {', '.join(unknown.servers)}: {value * factor:.3g} s (was {value:.3g} s)",
                    flush=True,
                )
        show([*rows, *held_out], errors(workers, [*rows, *held_out], [factors])[0])


if __name__ == "__main__":
    main()
