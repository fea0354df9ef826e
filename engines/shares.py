"""Which stages share a modelled GPU's SMs, and with what shares: `talker=0.8,vocoder=0.2`."""

from collections.abc import Mapping

from engines.core.stage import Stage
from engines.deployment import Deployment
from engines.devices.extensions import SmShare
from engines.scaling import parse_scale
from workloads.errors import UserError, nearest


def parse_shares(text: str) -> dict[str, float]:
    """{stage: share}. ValueError in words where it is not that."""
    shares = parse_scale(text)
    for stage, share in shares.items():
        if share > 1:
            raise ValueError(f"gives {stage} the share {share:g}; write a number above 0 and up to 1")
    return shares


def with_shares(
    deployment: Deployment, stages: Mapping[str, Stage], shares: Mapping[str, float]
) -> dict[str, Stage]:
    """The stages with their shares. UserError for a stage that there is not, a GPU that cannot be divided, and where
    only some stages of a GPU have one or they have more than all of it."""
    for name in shares:
        if name not in stages:
            raise UserError(
                f"sm_shares names stage {name!r}, which deployment {deployment.name!r} does not have."
                f"{nearest(name, stages)}"
            )
    if not deployment.gpu.sms:
        raise UserError(
            f"sm_shares divides a GPU, and {deployment.gpu.name} has no sms in hardware.yaml; set another gpu."
        )
    for group in sorted(deployment.gpu_groups):
        on_it = [name for name, stage in stages.items() if group in stage.gpus]
        given = [name for name in on_it if name in shares]
        if given and given != on_it:
            left = ", ".join(name for name in on_it if name not in shares)
            raise UserError(
                f"sm_shares gives {', '.join(given)} a share, but not {left} on the same GPU; add it."
            )
        total = sum(shares[name] for name in given)
        if total > 1 + 1e-9:
            raise UserError(
                f"sm_shares gives {' and '.join(given)} {total:g} of one GPU; let the shares add up to 1 at most."
            )
    return {
        name: stage.extended(SmShare(shares[name])) if name in shares else stage
        for name, stage in stages.items()
    }
