"""Parameters of which layers attend over first and last tokens only."""

from pydantic import BaseModel, ConfigDict, Field

from engines.core.stage import Stage
from engines.systems.omniinfer.attention_pattern import RECENT, SINKS, AttentionPattern


class AttentionParams(BaseModel):
    """Of OmniAttn (paper section 4.2)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    attention_pattern: str | None = Field(
        None,
        description="a 1 for each compressed layer and a 0 for each other, in order; default: every second, 30 of "
        "DeepSeek-R1's 61 as in the open-source code, which of them is not known",
    )
    attention_sinks: int = Field(
        SINKS, ge=0, description="first tokens that a compressed layer keeps: as the code"
    )
    attention_recent: int = Field(RECENT, ge=2, description="last tokens that it keeps: as the code")


def compressed(stage: Stage, params: AttentionParams) -> Stage:
    """The stage whose layers attend as the parameters say. UserError for a pattern of another depth."""
    layers = stage.decoder.layers
    text = params.attention_pattern or ("01" * layers)[:layers]
    pattern = AttentionPattern.of(text, layers, params.attention_sinks, params.attention_recent)
    return pattern.on(stage)
