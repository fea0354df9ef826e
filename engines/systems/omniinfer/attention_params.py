"""Parameters of which layers attend over first and last tokens only."""

from pydantic import BaseModel, ConfigDict, Field

SINKS, RECENT = 128, 384
"""The open-source code's: one block of 128 tokens at the front, three at the end."""


class AttentionParams(BaseModel):
    """Parameters of OmniAttn (paper section 4.2)."""

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
