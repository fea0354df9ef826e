"""Grids of what a user names: a deployment, whose replicas are split as it says, or a model."""

from engines.deployments import deployment_names, is_file, load_deployment
from engines.devices.kernels.export import kernels_of
from engines.devices.kernels.grids import Kernels
from engines.models import Decoder, load_model, yaml_files
from workloads.errors import UserError, nearest


def kernels_for(name: str, gpu: str, tp: int | None) -> Kernels:
    """Kernels of all stages on `gpu`. UserError for a name that is none, a split that does not divide its heads, and as
    `kernels_of`."""
    if name in deployment_names():
        deployment = load_deployment(name)
        stages = [(each.name, each.decoder, tp or each.split) for each in deployment.stages.values()]
        model = deployment.model.name
    elif name in yaml_files("models") or is_file(name):
        model = name
        stages = [(stage, decoder, tp or 1) for stage, decoder in load_model(name).stages.items()]
    else:
        known = [*deployment_names(), *yaml_files("models")]
        raise UserError(
            f"--model {name} is neither a deployment, nor a model, nor a model's file.{nearest(name, known)} A file is "
            "made with `rehearse model config.json`."
        )
    for stage, decoder, gpus in stages:
        _check(stage, decoder, gpus)
    return kernels_of(model, stages, gpu)


def _check(stage: str, decoder: Decoder, gpus: int) -> None:
    if decoder.heads % gpus or (decoder.ffn or decoder.expert_ffn) % gpus:
        raise UserError(
            f"--tp {gpus} does not divide the {decoder.heads} heads of stage {stage} and its feed-forward; set another."
        )
