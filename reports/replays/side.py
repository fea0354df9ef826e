"""The parts of reports that are of replays."""

from rich.console import Console

from harness.experiments.experiment import Experiment
from reports.replays import find, gpu
from reports.replays.constants import Fact, constants
from reports.replays.served import deployment_titles, deployments, lowered_lengths, served
from reports.runs.answer import answer
from reports.runs.measured import Run
from reports.runs.notes import failed_turns, notes
from reports.runs.policies import identical_sentences, order_sentences
from reports.runs.side import Side
from reports.tables.labels import short


def settings(experiment: Experiment) -> str:
    """Return the settings of the experiment itself."""
    return " ".join(f"{name}={short(value)}" for name, value in experiment.set.items())


def _constants(run: Run) -> dict[str, list[Fact]]:
    return constants(deployments(run))


def _notes(run: Run) -> list[str]:
    return [*lowered_lengths(run), *failed_turns(run), *notes(run)]


def show_answer(console: Console, run: Run) -> None:
    """Print the answer, then notes on the comparison."""
    counted = run.finished
    sentence = answer(counted, [*run.experiment.grid])
    if sentence is not None:
        console.print(f"{sentence}\n", highlight=False, soft_wrap=True, style="bold")
    for note in [*_notes(run), *order_sentences(run, never=True), *identical_sentences(run)] if counted else []:
        console.print(note, highlight=False, soft_wrap=True)


REPLAYS = Side(
    settings=settings,
    served=served,
    openings=(find.opening,),
    sections=(find.SECTION,),
    details=(gpu.draw,),
    deployments=deployment_titles,
    constants=_constants,
    notes=_notes,
    after_table=show_answer,
)
