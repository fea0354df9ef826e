"""The profile of a point of a modelled device: the one given, or the one its deployment ships with."""

from engines.deployments import Deployment
from engines.devices.kernels.grids import Kernels, check_kernels
from engines.devices.profile import check_profile, shipped_profile
from engines.devices.step_file import Calibrated, StepFile, check_calibrated, load_step_file
from engines.server import ServerParams
from workloads.devices import REAL_DEVICES
from workloads.errors import UserError


def given_profile(path: str | None, device: str) -> StepFile | None:
    """Return the profile that an experiment names. UserError when it cannot be read or its device cannot use one."""
    if path is None:
        return None
    if device in REAL_DEVICES:
        raise UserError(
            f"--profile {path} is for device virtual; device {device} has its own step times: "
            "leave the profile out, or add --device virtual."
        )
    return load_step_file(path)


def profile_of(
    given: StepFile | None, path: str | None, device: str, params: ServerParams, deployment: Deployment
) -> StepFile | None:
    """Return the profile of a point whose `params` resolve to `deployment`; None where a roofline or a real device
    gives the step times.

    UserError when the given one, read from `path`, was made for another model, GPU or split, or the point asks for a
    roofline, or scales a value that the profile has fitted.
    """
    if device in REAL_DEVICES:
        return None
    if given is not None and params.step_times == "roofline":
        raise UserError(
            f"step_times=roofline and --profile {path} both say how long steps take; leave one of them out."
        )
    if given is None:
        return shipped_profile(deployment.name) if params.checkpoint is None else None
    splits = {stage.name: stage.split for stage in deployment.stages.values()}
    if isinstance(given, Calibrated):
        if params.scale is not None:
            raise UserError(
                f"scale={params.scale} changes constants that --profile {path} has fitted; leave one of them out."
            )
        check_calibrated(given, deployment.model.name, deployment.gpu.name, splits, str(path))
    elif isinstance(given, Kernels):
        check_kernels(given, deployment.model.name, deployment.gpu.name, splits, str(path))
    else:
        made_for = params.checkpoint or deployment.name
        return check_profile(given, deployment.model.name, None, str(path), made_for)
    return given
