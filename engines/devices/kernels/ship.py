"""Make the kernels that come with Rehearsal anew: `python -m engines.devices.kernels.ship [GPU ...]`.

Needs the package of `engines.devices.kernels.aiconfigurator`. A stage that the package cannot say on a GPU is left out,
and named.
"""

import sys
from pathlib import Path

from engines.devices.kernels.aiconfigurator import SYSTEMS
from engines.devices.kernels.export import kernels_of
from engines.devices.kernels.grids import save_kernels
from engines.models import Decoder, load_model
from workloads.errors import UserError

SHIPPED: dict[str, tuple[int, ...]] = {
    "codellama_34b_instruct": (1, 2, 4),
    "llama_2_7b": (1, 2, 4),
    "llama_2_13b": (1, 2, 4),
    "llama_2_70b": (2, 4, 8),
    "llama_3_1_8b": (1, 2, 4),
    "llama_3_1_70b": (2, 4, 8),
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
    "qwen3_32b": (1, 2, 4),
    "qwen3_omni_30b_a3b": (1,),
    "qwen3_omni_30b_a3b_fp8": (1,),
    "yi_34b": (1, 2, 4),
}
"""Models, and over how many GPUs a replica of them is split."""

FOLDER = Path(__file__).parent


def ship(gpu: str, model_name: str) -> list[str]:
    """Write the file of one model on one GPU; what was left out of it, a sentence each."""
    made, left_out = [], []
    file = None
    for stage, decoder in load_model(model_name).stages.items():
        for gpus in SHIPPED[model_name]:
            if not _splits(decoder, gpus):
                continue
            try:
                file = kernels_of(model_name, [(stage, decoder, gpus)], gpu)
                made += file.kernels
            except (UserError, RuntimeError, ValueError) as why:
                left_out.append(f"{model_name} {stage} on {gpus} {gpu}: {' '.join(str(why).split())[:200]}")
    if file is not None:
        save_kernels(file.model_copy(update={"kernels": made}), FOLDER / gpu / f"{model_name}.yaml")
    return left_out


def _splits(decoder: Decoder, gpus: int) -> bool:
    return gpus == 1 or not (decoder.heads % gpus or decoder.code_predictor)


def main() -> None:
    for gpu in sys.argv[1:] or SYSTEMS:
        for model_name in SHIPPED:
            for sentence in ship(gpu, model_name):
                print(sentence, flush=True)
        print(gpu, "done", flush=True)


if __name__ == "__main__":
    main()
