"""GPUs of a replica of a record's deployment."""

from engines.deployments import Deployment
from engines.server import ServerParams, resolve
from harness.experiments.point import Point

PASSES = ("vision", "prefill", "decode")
"""Names of the first stage's steps where they run side by side (`engines.systems.nova`)."""


def deployment_of(point: Point) -> Deployment | None:
    """Return the deployment; None for a foreign endpoint, which is unknown."""
    params = point.server_params
    return resolve(ServerParams.of(params)) if "deployment" in params else None


def place(deployment: Deployment | None, stage: str, replica: int) -> str:
    """The GPUs that step together for a replica, as `GPU 1 (h200)`; of a stage that no deployment has,
    the stage."""
    gpus = gpus_of(deployment, stage, replica) if deployment else ()
    if deployment is None or not gpus:
        return stage
    return f"GPU{'s' if len(gpus) > 1 else ''} {', '.join(map(str, gpus))} ({deployment.gpu.name})"


def gpus_of(deployment: Deployment, stage: str, replica: int) -> tuple[int, ...]:
    """The GPUs of a replica; none of a stage or a replica that the deployment does not have."""
    if stage in PASSES and stage not in deployment.stages:
        stage = deployment.entry
    groups = deployment.stages[stage].gpus if stage in deployment.stages else ()
    return groups[replica] if replica < len(groups) else ()
