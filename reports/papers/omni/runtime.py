"""The same calls, step times and seeds through vLLM-Omni's own runtime and through our pipeline of it.

The runtime is vLLM-Omni 0.30.0 unchanged (`engines/stock/omni`): API server, orchestrator, three stage processes and
chunks through shared memory, on the wall clock. Ours is the pipeline of `engines/speaking` in virtual time. Both take
the length of each reply from the trace and the time of each step from the deployment. The real side needs the
environment of `make omni`, and a machine that does nothing else: its record says under `proof.cpu` what it took.

The tolerance is 5 %.
"""

from reports.papers.prelude import *

TITLE = "vLLM-Omni's runtime over modelled GPUs, and our pipeline of it"

ENGINES = ["vllm_omni", "liveserve"]
VIRTUAL, REAL = "our pipeline", "vLLM-Omni's runtime"
CALLERS = [1, 4, 16]


def _experiment(device: str, **more: Any) -> Experiment:
    return Experiment(
        name="omni-runtime",
        engines=ENGINES,
        workload="speech",
        device=device,
        set={
            "deployment": "qwen3_omni_2gpu",
            "sessions": 32,
            "turns": 8,  # nobody is through before the minute is over [chosen]
            "p": 0.3,
            "max_reply_tokens": 64,  # about 18 s of speech: several turns a caller in a minute [chosen]
            "network_ms": 0,
            "stop_after_s": 60,
            **more,
        },
        grid={"c": list(CALLERS)},
        seeds=[0],
        timeout_s=600,
    )


EXPERIMENTS = {VIRTUAL: _experiment("virtual"), REAL: _experiment("sockets", runtime="vllm-omni")}
QUICK = {"c": "4", "stop_after_s": "20"}

_SAID = {"audio_ttfp_p50": "median TTFP", "rtf_p50": "median RTF"}
_WHY = (
    "messages wait for the event loops of API server and orchestrator, chunks for the next poll of the stage that "
    "takes them, and all processes share this machine's cores"
)


def _same(metric: str, engine: str, callers: int) -> Claim:
    return claim(
        f"{_SAID[metric]} of {engine} at {callers} calls, real runtime / our pipeline",
        level(1.0, "×", within=0.05),
        ratio(metric, of(REAL, engine, c=callers), to=of(VIRTUAL, engine, c=callers)),
        _WHY,
    )


CLAIMS = {
    f"{engine}-{metric}-{callers}": _same(metric, engine, callers)
    for metric in _SAID
    for engine in ENGINES
    for callers in CALLERS
}

_SIDES = ((VIRTUAL, ":", 3.0), (REAL, "-", 1.4))
_SHOWN = (("audio_ttfp_s", "TTFP, ms", 1000), ("rtf", "RTF", 1))


@picture(TITLE, 2, len(CALLERS), 2.6)
def draw(panels: Panels, paper: Any, *axes: Any) -> str | LeftOut:
    """The distributions of TTFP and RTF at each number of callers, on both sides."""
    answered = 0
    cells = [(metric, callers) for metric in _SHOWN for callers in CALLERS]
    for ((column, label, factor), callers), own in zip(cells, axes, strict=True):
        for engine, look in engine_looks(*ENGINES).items():
            for side, line, width in _SIDES:
                points = of(side, engine, c=callers).points(panels)
                own_look = replace(look, line=line, width=width)
                answered += cdf(own, points, column, own_look, f"{engine}, {side}", factor)
        own.set(xlabel=label, xlim=(0, None))
        own.set_title(f"{callers} calls" if callers > 1 else "1 call")
        in_per_cent(own)
    if not answered:
        return LeftOut("runtime", TITLE, "no turn of these points was answered")
    axes[0].set_ylabel("share of turns")
    axes[0].figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower left", ncols=2)
    return (
        "The share of turns whose first audio came within the time on the horizontal axis, and below whose real-time "
        "factor was at most that: dotted in our pipeline, full in vLLM-Omni's own runtime."
    )
