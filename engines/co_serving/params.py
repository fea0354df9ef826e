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
