"""Grids of a decoder's kernels: their sizes, and their error at sizes between them."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import version

import numpy as np

from engines.deployments import deployment_names, is_file, load_deployment
from engines.devices.kernels.aiconfigurator import PACKAGE, TABLES, Answer, Gpu, Kernel
from engines.devices.kernels.decoder_kernels import DecoderKernels
from engines.devices.kernels.grids import LINES, Decodes, HeldOut, Kernels, Line, Prompts, Source, StageKernels, shape
from engines.devices.kernels.times import LARGEST_FALL, GridTimes, fall, largest_fall
from engines.models import Decoder, load_model, yaml_files
from workloads.errors import UserError, nearest

# fmt: off
TOKENS = (
    1, 2, 3, 4, 6, 8, 12, 16, 17, 24, 32, 33, 48, 64, 65, 80, 96, 97, 128, 129, 160, 192, 193, 256, 257, 320,
    384, 512, 513, 640, 768, 769, 1024, 1025, 1280, 1281, 1536, 1537, 1792, 2048, 2049, 2560, 3072, 3073,
    4096, 4097, 6144, 8192, 12288, 16384, 32768,
)
"""Tokens of a grid's points, with the sizes just behind the edges of tiles, where one token more takes a step up."""
# fmt: on
SAMPLES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
REQUESTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
CONTEXT = (16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
PROMPTS = (1, 2, 4, 16, 64)
NEW = (1, 4, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
BEFORE = (0, 128, 512, 2048, 8192, 32768, 131072)
MOST_NEW = 65536
"""Most new tokens of all prompts of a step in a grid; beyond, it keeps its edge."""

DIGITS = 4


def kernels_for(name: str, gpu: str, tp: int | None) -> Kernels:
    """Return the kernels of all stages on `gpu`. UserError for an unknown name, a split that does not divide its heads,
    and as `kernels_of`."""
    if name in deployment_names():
        deployment = load_deployment(name)
        stages = [(stage.name, stage.decoder, tp or stage.split) for stage in deployment.stages.values()]
        model = deployment.model.name
    elif name in yaml_files("models") or is_file(name):
        model = name
        stages = [(stage, decoder, tp or 1) for stage, decoder in load_model(name).stages.items()]
    else:
        names = [*deployment_names(), *yaml_files("models")]
        raise UserError(
            f"--model {name} is neither a deployment, nor a model, nor a model's file.{nearest(name, names)} A file is "
            "made with `rehearse model config.json`."
        )
    for stage, decoder, gpus in stages:
        _check_split(stage, decoder, gpus)
    return kernels_of(model, stages, gpu)


def _check_split(stage: str, decoder: Decoder, gpus: int) -> None:
    if decoder.heads % gpus or (decoder.ffn or decoder.expert_ffn) % gpus:
        raise UserError(
            f"--tp {gpus} does not divide the {decoder.heads} heads of stage {stage} and its feed-forward; set another."
        )


def kernels_of(model: str, stages: Iterable[tuple[str, Decoder, int]], gpu_name: str) -> Kernels:
    """Return grids of (stage, decoder, GPUs of a replica) on one kind of GPU. UserError as `Gpu` and
    `DecoderKernels`."""
    gpu = Gpu(gpu_name)
    return Kernels(
        model=model,
        gpu=gpu_name,
        package=f"{PACKAGE} {version(PACKAGE)}",
        backend=gpu.backend,
        date=datetime.now(UTC).date(),
        kernels=[_stage(gpu, stage, decoder, gpus) for stage, decoder, gpus in stages],
    )


def _stage(gpu: Gpu, name: str, decoder: Decoder, gpus: int) -> StageKernels:
    kernels = DecoderKernels(gpu, decoder, gpus)
    tally = _Tally(gpu, kernels.formats)
    predictor = decoder.code_predictor
    frame = DecoderKernels(gpu, predictor, 1).frame if predictor else None
    experts, allreduce = kernels.experts, kernels.allreduce
    stage = StageKernels(
        stage=name,
        gpus=gpus,
        decoder=json.loads(json.dumps(shape(decoder))),
        products=tally.line("products", kernels.products, TOKENS),
        experts=tally.line("experts", experts, TOKENS) if experts else None,
        allreduce=tally.line("allreduce", allreduce, TOKENS) if allreduce else None,
        head=tally.line("head", kernels.head, SAMPLES),
        predictor=tally.line("predictor", frame, SAMPLES[:8]) if frame else None,
        decodes=tally.decodes(kernels.decode),
        prompts=tally.prompts(kernels.prompt),
        sources=tally.sources,
        held_out={},
    )
    return settled(stage.model_copy(update={"held_out": held_out(kernels, stage)}))


class _Tally:
    """Fills grids, and counts the sources of their numbers."""

    def __init__(self, gpu: Gpu, formats: dict[str, str]) -> None:
        self.gpu, self.formats = gpu, formats
        self.sources: dict[str, Source] = {}

    def line(self, name: str, kernel: Kernel, at: Sequence[int]) -> Line:
        answers = [kernel(point) for point in at]
        self._count(name, answers)
        return Line(at=list(at), ms=[_short(answer.ms) for answer in answers])

    def decodes(self, kernel: Callable[[int, int], Answer]) -> Decodes:
        table = [[kernel(requests, context) for context in CONTEXT] for requests in REQUESTS]
        self._count("decodes", [answer for row in table for answer in row])
        return Decodes(
            requests=list(REQUESTS), context=list(CONTEXT), ms=[[_short(a.ms) for a in row] for row in table]
        )

    def prompts(self, kernel: Callable[[int, int, int], Answer]) -> Prompts:
        answers: list[Answer] = []

        def ms(prompts: int, new: int, before: int) -> float:
            most = max(1, min(new, MOST_NEW // prompts))
            answer = kernel(prompts, most, before)
            answers.append(answer)
            return _short(answer.ms * (new / most))

        table = [[[ms(p, n, b) for b in BEFORE] for n in NEW] for p in PROMPTS]
        self._count("prompts", answers)
        return Prompts(prompts=list(PROMPTS), new=list(NEW), before=list(BEFORE), ms=table)

    def _count(self, name: str, answers: Sequence[Answer]) -> None:
        """Count answers with equal weights: a grid's dearest points would drown the others."""
        shares = [(a.measured / a.ms, a.estimated / a.ms) for a in answers if a.ms]
        measured, estimated = np.mean(shares, axis=0) if shares else (0.0, 0.0)
        names = self.gpu.kernel_names(*TABLES[name], self.formats[name]) if name in TABLES else []
        self.sources[name] = Source(
            measured=round(float(measured), 3), estimated=round(float(estimated), 3), kernels=names
        )


def held_out(kernels: DecoderKernels, stage: StageKernels) -> dict[str, HeldOut]:
    """Return the errors of whole steps between the grid's points: of decodes, of prompts, and of both."""
    times = GridTimes(stage)
    decodes = [(b, c) for b in (1, 5, 11, 20, 41, 90) for c in (300, 700, 1500, 3000, 6000, 12000)]
    prompts = [(n, p) for n in (20, 80, 200, 640, 900, 1800, 2800, 5000) for p in (0, 300, 1000, 5000)]
    mixed = [(n, b, c) for n in (100, 450, 1300) for b in (3, 23, 75) for c in (400, 1700, 5500)]
    return {
        "decode": _error((times.decode_step_ms(*p), kernels.decode_step_ms(*p)) for p in decodes),
        "prefill": _error((times.prompt_step_ms(*p), kernels.prompt_step_ms(*p)) for p in prompts),
        "mixed": _error((times.prompt_step_ms(n, 0, b, c), kernels.prompt_step_ms(n, 0, b, c)) for n, b, c in mixed),
    }


def _error(pairs: Iterator[tuple[float, float]]) -> HeldOut:
    errors = [abs(grid / exact - 1) for grid, exact in pairs]
    return HeldOut(points=len(errors), median=round(float(np.median(errors)), 4), worst=round(max(errors), 4))


def settled(stage: StageKernels) -> StageKernels:
    """Return the stage with grids that never fall, by isotonic regression of logarithms, if its steps fall by more than
    `LARGEST_FALL`; else as it is. Lines are regressed at powers of two, and the sizes between keep their distance
    from these: a tile's last row is really faster than the rows before. `held_out` stays the error before."""
    if largest_fall(stage) <= LARGEST_FALL:
        return stage
    lines = {name: _settled_line(line) for name in LINES if (line := getattr(stage, name)) is not None}
    times = np.log(stage.decodes.ms)
    while fall(np.exp(times)) > 1e-9:
        for axis in (0, 1):
            times = np.apply_along_axis(_isotonic, axis, times)
    ms = np.vectorize(_short)(np.exp(times)).tolist()
    return stage.model_copy(update=lines | {"decodes": stage.decodes.model_copy(update={"ms": ms})})


def _settled_line(line: Line) -> Line:
    at, times = np.log(line.at), np.log(line.ms)
    full = np.bitwise_count(line.at) == 1
    shift = np.interp(at, at[full], _isotonic(times[full]) - times[full])
    return Line(at=line.at, ms=[_short(each) for each in np.exp(times + shift)])


def _isotonic(line: np.ndarray) -> np.ndarray:
    """Return the rising line of the least sum of distances: a run that falls gets its median."""
    runs: list[list[float]] = []
    for each in line:
        runs.append([each])
        while len(runs) > 1 and np.median(runs[-2]) > np.median(runs[-1]):
            last = runs.pop()
            runs[-1] += last
    return np.concatenate([np.full(len(run), np.median(run)) for run in runs])


def _short(ms: float) -> float:
    return float(f"{ms:.{DIGITS}g}")
