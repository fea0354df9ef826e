"""Servers of four months, each fitted at two loads and predicted at the others: `measured.yaml` has the public runs.

The audio of a reply of Qwen3-Omni is as long as in those runs (E2E over RTF: some 160 s of 900 tokens), with a spread
that leaves as many requests under way on average (0.89 of c in May). Texts for Qwen3-TTS last 5.6 s on average: as
11.1 s of audio a second at 2 requests a second say. With cloned voices they last 4 s (E2E over RTF in PR 7781), and
recordings 5 s [chosen]: near the 72 frames that the server's CUDA graphs are made for.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from harness.metrics.stats import across_seeds
from reports.claims.bands import of_model
from reports.claims.claim import Unit
from reports.claims.quantities import Measure, Panels, Quantity, of, of_run, value
from reports.claims.stated import claim, level
from reports.figures.drawing import identity, plain_log
from reports.figures.forms import picture
from reports.papers.experiment import experiment
from reports.runs.measured import Measured
from workloads.files.yaml_file import read_yaml

TITLE = "Qwen3-Omni and Qwen3-TTS on two H100: vLLM-Omni of four months, predicted and measured"

PAPER: list[dict[str, Any]] = read_yaml(str(Path(__file__).with_name("measured.yaml")))
_LOADS = [1, 4, 8, 16, 32]
_TTS, _CLONES = "qwen3_tts_2gpu", "qwen3_tts_base_2gpu"
_TTS_LOADS: dict[int | str, dict[str, Any]] = {
    1: {"c": 1, "requests": 20},
    8: {"c": 8, "requests": 80},
    16: {"c": 16, "requests": 128},
    64: {"c": 64, "requests": 128},
    "2/s": {"rate": 2, "requests": 100},
}
_CLONED: dict[int, dict[str, Any]] = {
    1: {"c": 1, "requests": 20},
    8: {"c": 8, "requests": 80},
    16: {"c": 16, "requests": 128, "voices": 52},
    64: {"c": 64, "requests": 128, "voices": 1},
}
"""One server took the loads one after the other, and vLLM-Omni's benchmark shuffles seed-tts alike each time (0.24.0,
seed_tts_dataset.py): of 16's recordings it had 80 of 128 already, and all of 64's. 128 draws find 48 of 52."""
_KV_BLOCKS = 6400
"""[derived] vLLM takes 0.9 of the 85.0 GB that an H100 reports; 63.4 GB are weights, some 3 GB activations."""

EXPERIMENTS = (
    {
        f"c={c}": experiment(
            f"voice-truth-{c}",
            ["vllm_omni"],
            "poisson",
            {
                "gpu": "h100",
                "kv_pool_blocks": _KV_BLOCKS,
                "prefix_caching": False,
                "playback": "none",
                "modality": "text",
                "c": c,
                "requests": 4 * c,
                "rate": 1000,
                "prompt_tokens": 2500,
                "prompt_sigma": 0,
                "max_prompt_tokens": 2500,
                "reply_tokens": 900,
                "reply_sigma": 0,
                "max_reply_tokens": 900,
                "speech_s_per_token": 0.17,
                "speech_sigma": 0.3,
                "network_ms": 0.5,
            },
            deployment=[
                run["server"]
                for run in PAPER
                if not run["server"].startswith("qwen3_tts") and any(c in values for values in run["values"].values())
            ],
        )
        for c in _LOADS
    }
    | {
        f"speech {load}": experiment(
            f"voice-truth-speech-{str(load).replace('/', '-')}",
            ["vllm_omni"],
            "poisson",
            {
                "deployment": _TTS,
                "playback": "none",
                "modality": "text",
                "rate": 1000,
                "reply_tokens": 20,
                "reply_sigma": 0.3,
                "network_ms": 0.5,
                **chosen,
            },
        )
        for load, chosen in _TTS_LOADS.items()
    }
    | {
        f"cloned {load}": experiment(
            f"voice-truth-cloned-{load}",
            ["vllm_omni"],
            "poisson",
            {
                "deployment": _CLONES,
                "playback": "none",
                "modality": "text",
                "rate": 1000,
                "reply_tokens": 20,
                "reply_sigma": 0.3,
                "speech_s_per_token": 0.2,
                "reference_s": 5.0,
                "network_ms": 0.5,
                **chosen,
            },
        )
        for load, chosen in _CLONED.items()
    }
)
QUICK = {"deployment": "qwen3_omni_2gpu,qwen3_omni_2gpu_june"}


def _throughput(point: Measured) -> float:
    end_s, e2e_s, audio_s = (point.all_requests[name].to_numpy(float) for name in ("turn_end_s", "e2e_s", "audio_s"))
    return float(audio_s.sum() / (end_s + e2e_s).max())


class _Shown(NamedTuple):
    """A quantity, how it is read off, the unit of its claims and how far a prediction may be off."""

    words: str
    quantity: Quantity
    unit: Unit
    within: float


_QUANTITIES = {
    "rtf": _Shown("mean RTF", of_run("rtf", np.mean), "", 0.10),
    "rtf_p50": _Shown("median RTF", of_run("rtf", np.nanmedian), "", 0.15),
    "ttfp_p50": _Shown("median TTFP", "audio_ttfp_whole_p50", "ms", 0.30),
    "ttft": _Shown("mean TTFT", of_run("ttft_s", np.mean), "ms", 0.20),
    "ttft_p50": _Shown("median TTFT", "ttft_whole_p50", "ms", 0.20),
    "tbt": _Shown("mean time per token", of_run("tbt_mean_s", np.mean), "ms", 0.20),
    "e2e": _Shown("mean E2E", of_run("e2e_s", np.mean), "s", 0.20),
    "audio_throughput": _Shown("seconds of audio a second", _throughput, "", 0.20),
}


class _Row(NamedTuple):
    """One measured value."""

    run: Mapping[str, Any]
    name: str
    load: int | str
    measured: float

    @property
    def id(self) -> str:
        server = self.run["server"].removeprefix("qwen3_omni_")
        return f"{server}-{self.name}-{self.load}".translate({95: "-", 47: "-"})

    @property
    def fitted(self) -> bool:
        return self.load in self.run.get("fitted", {}).get(self.name, [])

    @property
    def ours(self) -> Measure:
        kind = {_TTS: "speech ", _CLONES: "cloned "}.get(self.run["server"], "c=")
        panel = f"{kind}{self.load}"
        where = of(panel, "vllm_omni", deployment=self.run["server"])
        return value(_QUANTITIES[self.name].quantity, where)


ROWS = [
    _Row(run, name, load, measured)
    for run in PAPER
    for name, values in run["values"].items()
    for load, measured in values.items()
]

_WHY = {
    "qwen3-tts-base-2gpu-rtf-p50-64": "June's server had 1.29 (PR 4289), and PR 5231 calls July's value a regression",
    "2gpu-june-ttft-8": "the seven prompts of its second step took another half a second in the measured "
    "run, which four, sixteen and 32 requests do not show; not explained",
    "2gpu-july-ttft-8": "as in June, by half as much; not explained",
    "qwen3-tts-2gpu-audio-throughput-64": "this value is from July (PR 5231), whose RTF was worse than "
    "June's; with ten concurrent requests it cannot be a quarter higher than with 16",
}
CLAIMS = {
    row.id: claim(
        f"{row.run['label']}, {f'{row.load} at once' if isinstance(row.load, int) else row.load}: {shown.words}",
        level(row.measured, shown.unit, within=of_model(shown.within, "[chosen] error that a prediction may have")),
        row.ours,
        _WHY.get(row.id, ""),
        fitted="the server's host times were fitted to this load" if row.fitted else "",
        chosen="" if "tts" in row.run["server"] else "the mechanisms were chosen with all loads in view",
        remark=row.run["source"],
    )
    for row in ROWS
    for shown in [_QUANTITIES[row.name]]
}

_AXES = {
    "RTF": ("rtf", "rtf_p50"),
    "first token, s": ("ttft", "ttft_p50"),
    "time per token, s": ("tbt",),
    "first packet, s": ("ttfp_p50",),
}
_COLOURS = "#999999", "#d55e00", "#0072b2", "#009e73", "#cc79a7", "#56b4e9"


@picture(TITLE, 4, ncols=5)
def draw(panels: Panels, *axes: Any) -> str:
    """Draw predicted over measured values; fitted ones are hollow."""
    colours = dict(zip([run["server"] for run in PAPER], _COLOURS, strict=True))
    for axis, (title, names) in zip(axes, _AXES.items(), strict=True):
        ends = [row.measured for row in ROWS if row.name in names]
        for row in ROWS:
            ours = across_seeds(row.ours(panels)).median if row.name in names else None
            if ours is not None:
                ends, colour = [*ends, ours], colours[row.run["server"]]
                axis.plot(row.measured, ours, "o", ms=5, mec=colour, mfc="none" if row.fitted else colour)
        identity(axis, 0.5 * min(ends), 1.2 * max(ends))
        axis.set(xscale="log", yscale="log", xlabel=f"measured {title}", ylabel="predicted")
        plain_log(axis.xaxis)
        plain_log(axis.yaxis)
    for run in PAPER:
        axes[0].plot([], [], "o", color=colours[run["server"]], label=run["label"])
    return (
        "Each point is one public run, a mean or a median of it. Hollow: a constant was fitted to this load; filled: "
        "predicted. Grey: within 10 %."
    )
