"""Which model a run served: by the name that it is published under, its weights as the server had them."""

from pathlib import Path
from typing import Any

import yaml

from engines.models import Model, load_model, yaml_files
from engines.models.published import model_of
from harness.truth.run import Server
from workloads.atomic_file import output
from workloads.errors import UserError
from workloads.files.yaml_file import shipped_yaml

FP8 = ("fp8", "fbgemm_fp8")
"""vLLM's `quantization` where layers' weights of 16 bits are made FP8 as they are loaded."""

MEND = "make its file with `rehearse model config.json` and add --model FILE"


def served_model(run: str, server: Server, folder: Path) -> tuple[Model, str]:
    """The model, and its name or file; in FP8 where the server made it so, by a file in `folder`. UserError where it is
    not known, or quantised in a way that is not."""
    model = model_of(server.model)
    if model is None:
        raise UserError(f"{run} served {server.model}, whose sizes are not known here; {MEND}.")
    if server.quantization is None or all(each.weight_dtype_bytes == 1 for each in model.stages.values()):
        return model, model.name
    if server.quantization not in FP8:
        raise UserError(f"{run} served {server.model} quantised by {server.quantization}; {MEND}.")
    path = folder / "model.yaml"
    with output(path, make_folder=True) as file:
        file.write(yaml.safe_dump(_in_fp8(shipped_yaml(yaml_files("models")[model.name]))).encode())
    return load_model(str(path)), str(path)


def _in_fp8(facts: dict[str, Any]) -> dict[str, Any]:
    weights = {"weight_dtype_bytes": {"value": 1, "source": "[config] the server's quantization"}}
    return {**facts, "stages": {name: {**stage, **weights} for name, stage in facts["stages"].items()}}
