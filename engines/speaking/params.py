"""What can be chosen of every system of thinker, talker and vocoder."""

from pydantic import BaseModel, ConfigDict, Field


class SpeakingParams(BaseModel):
    """Order, KV management, window and routing are separate choices; a named system is a set of defaults for them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    order: str = Field("fcfs", description="the order of requests at thinker and talker")
    kv: str = Field("lru", description="what becomes of the thinker's KV between the turns of a session")
    window: int | None = Field(
        None,
        ge=1,
        description="latest tokens of its context that the thinker keeps and attends to; null: all",
    )
    sinks: int = Field(0, ge=0, description="first tokens that it keeps as well, where a window is set")
    system_tokens: int = Field(
        0,
        ge=0,
        exclude_if=lambda tokens: not tokens,
        description="tokens of one system prompt in front of every session's context; 0: none",
    )
    routing: str = Field("session_affinity", description="which thinker replica takes a turn")
    # Left out of what is stored where nobody sets them, so that points keep the ids that they had without them.
    prefill: int | None = Field(
        None,
        ge=1,
        le=1000,
        exclude_if=lambda replicas: replicas is None,
        description="replicas that compute prompts up to the first token and hand their KV over to others; set decode "
        "too; default: as the deployment says, which is none where all replicas do both",
    )
    decode: int | None = Field(
        None,
        ge=1,
        le=1000,
        exclude_if=lambda replicas: replicas is None,
        description="replicas that go on with requests whose prompts others have computed",
    )
    decode_routing: str = Field(
        "least_load",
        exclude_if=lambda rule: rule == "least_load",
        description="which of those takes a request",
    )
    talker_routing: str = Field("least_load", description="which talker replica speaks a reply")
