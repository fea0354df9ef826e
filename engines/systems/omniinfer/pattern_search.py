"""OmniAttn's search for a pattern by a genetic algorithm (section 4.2, equation 7), with pymoo.

It compresses as many layers as it can while a score stays above a threshold. The caller defines the score; without a
model's weights it is no accuracy (`attention_error`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from workloads.optional import optional
from workloads.seeds import stream

Score = Callable[[tuple[bool, ...]], float]


@dataclass(frozen=True)
class Search:
    """[chosen] where the paper gives no value: patterns of a generation, generations, generations without a better one
    after which it ends, and patterns among which a parent is the best."""

    population: int = 32
    generations: int = 30
    patience: int = 8
    tournament: int = 3


@dataclass
class Found:
    """The best pattern, its score, the most layers compressed after each generation, and patterns that were scored."""

    pattern: tuple[bool, ...]
    score: float
    history: list[int] = field(default_factory=list)
    scored: int = 0


def search(score: Score, layers: int, threshold: float, seed: int, settings: Search = Search()) -> Found:
    """Return the pattern that compresses most layers with `score` >= `threshold`; on a tie the one with the higher
    score.

    The empty pattern is among the first, so a qualifying one is found if it qualifies. Each pattern is scored once.
    UserError without pymoo.
    """
    ga = optional("pymoo.algorithms.soo.nonconvex.ga", "search")
    operators = {
        "crossover": optional("pymoo.operators.crossover.ux", "search").UniformCrossover(prob=1.0),
        "mutation": optional("pymoo.operators.mutation.bitflip", "search").BitflipMutation(
            prob_var=1 / layers
        ),
        "selection": optional("pymoo.operators.selection.tournament", "search").TournamentSelection(
            pressure=settings.tournament, func_comp=_best_of
        ),
    }
    problem = optional("pymoo.core.problem", "search").Problem
    scores: dict[tuple[bool, ...], float] = {}

    def scored(row: np.ndarray) -> float:
        pattern = tuple(bool(compressed) for compressed in row)
        if pattern not in scores:
            scores[pattern] = score(pattern)
        return scores[pattern]

    def evaluate(x: np.ndarray, out: dict[str, np.ndarray]) -> None:
        values = np.array([scored(row) for row in x])
        out["F"] = -x.sum(axis=1)
        out["G"] = threshold - values

    task = type("_Pattern", (problem,), {"_evaluate": lambda self, x, out, *_, **__: evaluate(x, out)})
    first = _first(layers, settings.population, stream(seed, "pattern population"))
    algorithm = ga.GA(settings.population, sampling=first, eliminate_duplicates=True, **operators)
    algorithm.setup(
        task(n_var=layers, n_obj=1, n_ieq_constr=1, xl=0, xu=1, vtype=bool),
        termination=("n_gen", settings.generations),
        seed=int(stream(seed, "pattern search").integers(2**31)),
        verbose=False,
    )
    history: list[int] = []
    while algorithm.has_next():
        algorithm.next()
        history.append(max((sum(p) for p, value in scores.items() if value >= threshold), default=0))
        if len(history) > settings.patience and history[-1] == history[-1 - settings.patience] > 0:
            break
    qualified = [p for p, value in scores.items() if value >= threshold] or list(scores)
    best = max(qualified, key=lambda p: (sum(p), scores[p], p))
    return Found(best, scores[best], history, len(scores))


def _first(layers: int, population: int, rng: np.random.Generator) -> np.ndarray:
    """Return patterns with half of the layers at random, and the empty pattern, which loses nothing."""
    first = rng.random((population, layers)) < 0.5
    first[0] = False
    return first


def _best_of(population: np.ndarray, contests: np.ndarray, **_: object) -> np.ndarray:
    """Return the winner of each contest: the pattern nearest to the threshold, and among equals the one with the least
    objective."""

    def rank(index: int) -> tuple[float, float, int]:
        return population[index].CV[0], population[index].F[0], index

    return np.array([[min(contest, key=rank)] for contest in contests.tolist()])
