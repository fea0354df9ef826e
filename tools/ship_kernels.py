"""Make the kernels that come with Rehearsal anew: `python -m tools.ship_kernels [GPU ...]`, one Parquet file a GPU.

Needs the package of `engines.devices.kernels.aiconfigurator`. A stage that the package cannot say on a GPU is left out,
and named. The same grids give the same bytes.
"""

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from engines.deployments.export_kernels import DIGITS, kernels_of
from engines.devices.kernels.aiconfigurator import SYSTEMS
from engines.devices.kernels.choose import PACKAGE
from engines.devices.kernels.grids import Kernels, StageKernels
from engines.models import load_model
from workloads.errors import UserError

SHIPPED: dict[str, tuple[int, ...]] = {
    "codellama_34b_instruct": (1, 2, 4),
    "llama_2_7b": (1, 2, 4),
    "llama_2_13b": (1, 2, 4),
    "llama_2_70b": (2, 4, 8),
    "llama_3_1_8b": (1, 2, 4),
    "llama_3_1_8b_fp8": (1, 2),
    "llama_3_1_70b": (2, 4, 8),
    "llama_3_1_70b_fp8": (1, 2, 4, 8),
    "llama_4_scout_fp8": (2, 4),
    "ming_flash_omni_2": (1, 2),
    "minicpm_o_4_5": (1,),
    "mistral_7b": (1, 2, 4),
    "mixtral_8x7b": (1, 2, 4),
    "moshi_7b": (1,),
    "qwen2_5_7b": (1, 2, 4),
    "qwen2_5_14b": (1, 2, 4),
    "qwen2_5_32b": (1, 2, 4),
    "qwen2_5_72b": (2, 4, 8),
    "qwen2_5_omni_7b": (1,),
    "qwen3_8b": (1, 2, 4),
    "qwen3_14b": (1, 2, 4),
    "qwen3_30b_a3b": (1, 2),
    "qwen3_30b_a3b_fp8": (1, 2),
    "qwen3_32b": (1, 2, 4),
    "qwen3_32b_fp8": (1, 2),
    "qwen3_omni_30b_a3b": (1,),
    "qwen3_omni_30b_a3b_fp8": (1,),
    "yi_34b": (1, 2, 4),
}
"""Models, and over how many GPUs a replica of them is split."""

FOLDER = Path(__file__).parents[1].joinpath(*PACKAGE.split("."))

ABOUT = """\
Made by `python -m tools.ship_kernels` from kernels that others have measured (package). One row for each stage of a \
model and number of GPUs that it is split over. A grid holds ms of all layers, without a host, row by row of its axes: \
tokens and samples of a step; requests and context (tokens that each sees) of decodes; prompts, their new tokens, and \
those before them. ms = digits * 10^exponent, exactly. measured, estimated: shares of a grid's times that are from \
kernels measured in this size or between such sizes, and from the bytes they move or kernels of other sizes. Grids of \
a stage whose steps fell as they grow are smoothed (engines.deployments.export_kernels.settled). held_out: |grid / \
measured - 1| at points that are none of the grid's. decoder: sizes of the stage as JSON."""

GRID = {
    "name": pa.string(),
    "axes": pa.list_(pa.struct({"name": pa.string(), "at": pa.list_(pa.int32())})),
    "digits": pa.list_(pa.int32()),
    "exponent": pa.list_(pa.int32()),
    "measured": pa.float64(),
    "estimated": pa.float64(),
    "kernels": pa.list_(pa.string()),
}
HELD_OUT = {"step": pa.string(), "points": pa.int32(), "median": pa.float64(), "worst": pa.float64()}
SCHEMA = pa.schema(
    {
        "schema_version": pa.int32(),
        "model": pa.string(),
        "package": pa.string(),
        "backend": pa.string(),
        "date": pa.date32(),
        "stage": pa.string(),
        "gpus": pa.int32(),
        "decoder": pa.string(),
        "grids": pa.list_(pa.struct(GRID)),
        "held_out": pa.list_(pa.struct(HELD_OUT)),
    }
)
TIMES = [f"grids.list.element.{name}.list.element" for name in ("digits", "exponent")]


def kernels_on(gpu: str, model_name: str) -> tuple[Kernels | None, list[str]]:
    """One model on one GPU; what was left out of it, a sentence each."""
    made, left_out = [], []
    file = None
    for stage, decoder in load_model(model_name).stages.items():
        for gpus in SHIPPED[model_name]:
            if gpus > 1 and (decoder.heads % gpus or decoder.code_predictor):
                continue
            try:
                file = kernels_of(model_name, [(stage, decoder, gpus)], gpu)
                made += file.kernels
            except (UserError, RuntimeError, ValueError) as why:
                left_out.append(f"{model_name} {stage} on {gpus} {gpu}: {' '.join(str(why).split())[:200]}")
    return file and file.model_copy(update={"kernels": made}), left_out


def save(gpu: str, found: Iterable[Kernels], folder: Path = FOLDER) -> None:
    """Write the file of a GPU, which `engines.devices.kernels.choose` reads."""
    rows = [row for kernels in sorted(found, key=lambda each: each.model) for row in _rows(kernels)]
    with pq.ParquetWriter(
        folder / f"{gpu}.parquet",
        SCHEMA,
        compression="zstd",
        compression_level=19,
        use_dictionary=False,
        column_encoding=dict.fromkeys(TIMES, "BYTE_STREAM_SPLIT"),
        write_statistics=False,
        store_schema=False,
    ) as file:
        file.write_table(pa.Table.from_pylist(rows, SCHEMA))
        file.add_key_value_metadata({"about": ABOUT, "gpu": gpu})


def _rows(kernels: Kernels) -> Iterator[dict[str, Any]]:
    of_all = kernels.model_dump(exclude={"gpu", "kernels"})
    for stage in kernels.kernels:
        yield {
            **of_all,
            "stage": stage.stage,
            "gpus": stage.gpus,
            "decoder": json.dumps(stage.decoder),
            "grids": [_grid(stage, name) for name in stage.sources],
            "held_out": [{"step": step, **error.model_dump()} for step, error in stage.held_out.items()],
        }


def _grid(stage: StageKernels, name: str) -> dict[str, Any]:
    facts = getattr(stage, name).model_dump()
    ms = facts.pop("ms")
    for _ in list(facts)[1:]:
        ms = [each for row in ms for each in row]
    times = [_decimal(each) for each in ms]
    return {
        "name": name,
        "axes": [{"name": axis, "at": at} for axis, at in facts.items()],
        "digits": [digits for digits, _ in times],
        "exponent": [exponent for _, exponent in times],
        **stage.sources[name].model_dump(),
    }


def _decimal(ms: float) -> tuple[int, int]:
    """(digits, exponent) of a time of `DIGITS` digits."""
    digits, exponent = f"{ms:.{DIGITS - 1}e}".split("e")
    return int(digits.replace(".", "")), int(exponent) - (DIGITS - 1)


def main() -> None:
    for gpu in sys.argv[1:] or SYSTEMS:
        found = []
        for model_name in SHIPPED:
            kernels, left_out = kernels_on(gpu, model_name)
            found += [kernels] if kernels is not None else []
            for sentence in left_out:
                print(sentence, flush=True)
        save(gpu, found)
        print(gpu, "done", flush=True)


if __name__ == "__main__":
    main()
