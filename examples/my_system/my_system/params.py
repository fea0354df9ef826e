"""What can be chosen of every system of reranker and generator."""

from pydantic import Field

from engines.composition import LibraryParams


class RagParams(LibraryParams):
    """A named system is a set of defaults for these."""

    scheduler: str = Field("fcfs", description="scheduling policy of reranker and generator")
    routing: str = Field("least_load", description="which reranker replica scores a passage")
    passage_tokens: int = Field(
        256, ge=16, le=2048, description="retrieved text is scored in passages of so many tokens"
    )
    kept: int = Field(4, ge=1, le=32, description="passages, the best ones, that the generator reads")
