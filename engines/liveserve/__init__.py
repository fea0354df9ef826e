"""LiveServe: scheduling that knows what the listener has heard. Its urgency scheduler (paper section 4)."""

from pydantic import BaseModel

from engines.liveserve.params import Params
from engines.liveserve.scheduler import UrgencyPolicy

__all__ = ["SUMMARY", "Params", "UrgencyPolicy", "policy"]

SUMMARY = (
    "LiveServe's urgency scheduler (U0/U1/U2, utility, deferral, barge-in abort) on vLLM-Omni's pipeline"
)


def policy(stage: str, params: BaseModel) -> UrgencyPolicy | None:
    """The thinker's and the talker's policy; the vocoder stays first come, first served."""
    assert isinstance(params, Params)
    if not params.scheduling or stage not in ("thinker", "talker"):
        return None
    return UrgencyPolicy(stage, params)
