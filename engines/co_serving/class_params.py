"""Parameters that co-serving systems share."""

from pydantic import BaseModel, ConfigDict, Field


class ClassParams(BaseModel):
    """Tells online requests from offline ones."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    offline_priority: int = Field(
        1,
        ge=-1000,
        le=1000,
        description="requests of this priority or a less urgent one (higher) are offline",
    )
