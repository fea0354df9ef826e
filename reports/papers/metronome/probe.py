"""The common parts of the two probes of answer quality. They measure the real answers of a model, so a user brings
model and questions. No quality is reported that no model produced."""

from typing import Any

from harness.experiments.experiment import Experiment
from reports.papers.experiment import experiment
from reports.papers.metronome.calls import QWEN

NEEDS = (
    "the weights of Qwen3-Omni-30B-A3B (--set checkpoint=DIR), recorded questions (--set questions=DIR) and a GPU of "
    "96 GB (--device cuda; --device cpu for tiny weights)"
)
GIVE = ("checkpoint", "questions")


def probe(name: str, engines: list[str], **settings: Any) -> Experiment:
    """Spoken questions to the thinker, on one seed as in the paper; a session that grows too long ends by itself."""
    fixed = {"deployment": QWEN, "on_max_len": "finish_one", **settings}
    return experiment(name, engines, "questions", fixed, seeds=[0], timeout_s=3600)
