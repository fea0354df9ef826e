"""Sessions bounded above the engine, Metronome's second baseline: at the horizon a session's request is ended and a new
one opened, into which its latest audio is fed again (section 5.2, Fig. 10)."""

from pydantic import BaseModel, Field, model_validator

from engines.calls.params import SessionParams

SUMMARY = (
    "interaction sessions whose request is renewed by the application when it has grown to recycle_at tokens"
)


class Params(SessionParams):
    """Beside those of every engine for sessions, when to recycle and what to carry over."""

    recycle_at: int = Field(
        1024,
        ge=1,
        description="logical length since the last recycle at which a session is recycled, tokens: W, the horizon that "
        "is compared with",
    )
    carry: int = Field(
        512,
        ge=0,
        description="tokens' worth of the latest audio that the new request starts with: [chosen] W/2, so that a "
        "session holds W/2 to W",
    )

    @model_validator(mode="after")
    def _shrinks(self) -> "Params":
        if self.carry >= self.recycle_at:
            raise ValueError(f"carry={self.carry} must be less than recycle_at={self.recycle_at}")
        return self


def horizon(params: BaseModel) -> Params:
    """What the tick gateway goes by."""
    assert isinstance(params, Params)
    return params
