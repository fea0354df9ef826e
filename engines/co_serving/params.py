"""Parameters that co-serving systems share."""

from pydantic import BaseModel, ConfigDict, Field


class ClassParams(BaseModel):
    """Who is online and who is offline."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    offline_priority: int = Field(
        1,
        ge=-1000,
        le=1000,
        description="requests of this priority or a less urgent one (higher) are offline",
    )


class ChunkParams(ClassParams):
    """Of steps with a fixed budget, as chunked prefill has it."""

    chunk_tokens: int = Field(
        2048,
        ge=1,
        description="tokens of a step at most, where no prediction of its time sizes it (section 6.1)",
    )
