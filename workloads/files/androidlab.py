"""Public tasks for GUI agents on a phone: instructions and the number of steps that a person needs.

AndroidLab has YAML files {APP, package, tasks: [{task_id, task, ...}]} and next to them `ground_truth_length.json`,
which maps task ids to steps. AndroidControl has an episode a row: {goal, actions: [...], ...}.
"""

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from workloads.errors import UserError
from workloads.files.json_file import JsonFile, read_document, read_text
from workloads.files.sharegpt_file import tokens_of

STEPS_FILE = "ground_truth_length.json"
MAX_STEPS = 1000


@dataclass(frozen=True)
class Tasks:
    """Arrays of shape (tasks,), int64: text tokens of the instruction, and steps."""

    instruction_tokens: np.ndarray
    steps: np.ndarray


def read_tasks(path: Path, notes: list[str], skip_bad: bool = False) -> Tasks:
    """AndroidLab's tasks where `path` is a folder, else episodes; UserError names the place of bad input."""
    return (read_androidlab if os.path.isdir(path) else read_episodes)(path, notes, skip_bad)


def read_episodes(path: Path, notes: list[str], skip_bad: bool = False) -> Tasks:
    """Recorded episodes as JSON lines: `goal` is the instruction, and each of `actions` a step."""
    file = JsonFile(path, skip_bad=skip_bad)
    goals = file.values(file.require(["goal"]), str, "a text")
    acted = file.values(file.require(["actions"]), list, "a list")
    file.refuse(np.array([goal is not None and not goal.strip() for goal in goals]), "goal", "is empty")
    counts = np.array([len(actions or ()) for actions in acted])
    file.refuse(counts < 1, "actions", "is empty")
    file.refuse(counts > MAX_STEPS, "actions", f"has more than {MAX_STEPS} steps")
    notes += file.notes()
    if not file.good.any():
        raise file.nothing_left()
    tokens = np.array([math.ceil(tokens_of(goal or "")) for goal in goals], np.int64)
    notes.append(f"{int(file.good.sum())} episodes of {file.path.name}")
    return Tasks(tokens[file.good], counts[file.good].astype(np.int64))


def read_androidlab(folder: Path, notes: list[str], skip_bad: bool = False) -> Tasks:
    """The tasks of all YAML files in a folder; UserError names file, task and field of bad input."""
    if not os.path.isdir(folder):
        raise UserError(f"{folder} is not a folder; give the one with AndroidLab's .yaml files.")
    files = sorted(path for path in folder.iterdir() if path.suffix in (".yaml", ".yml"))
    if not files:
        raise UserError(f"{folder} has no .yaml file; give the folder with AndroidLab's tasks.")
    steps_of = read_document(folder / STEPS_FILE)
    if not isinstance(steps_of, dict):
        raise UserError(f"{folder / STEPS_FILE} is not an object of task ids and steps; correct it.")
    tasks: list[tuple[int, int]] = []
    skipped = 0
    for path in files:
        for place, task in enumerate(_tasks(path), 1):
            try:
                tasks.append(_checked(task, steps_of))
            except ValueError as error:
                if not skip_bad:
                    raise UserError(f"{path}, task {place}: {error}; correct or remove this task.") from None
                skipped += 1
    if skipped:
        notes.append(f"{skipped} of {skipped + len(tasks)} tasks skipped: no instruction or no number of steps")
    if not tasks:
        raise UserError(f"{folder}: no good task in {len(files)} files; give better ones.")
    tokens, steps = np.array(tasks, np.int64).T
    notes.append(f"{len(tasks)} tasks of {len(files)} apps")
    return Tasks(tokens, steps)


def _tasks(path: Path) -> list[Any]:
    try:
        document = yaml.safe_load(read_text(path))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        message = " ".join(str(error).split())
        raise UserError(f"{path} is not a readable YAML file ({message}); correct it.") from None
    tasks = document.get("tasks") if isinstance(document, dict) else None
    if not isinstance(tasks, list):
        raise UserError(f"{path} has no list 'tasks'; give a file of AndroidLab's tasks.")
    return tasks


def _checked(task: Any, steps_of: dict[str, Any]) -> tuple[int, int]:
    if not isinstance(task, dict):
        raise ValueError(f"{task!r} is not an object")
    text, name = task.get("task"), task.get("task_id")
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"'task' is {text!r}, not an instruction")
    steps = steps_of.get(name) if isinstance(name, str) else None
    if isinstance(steps, bool) or not isinstance(steps, int) or not 1 <= steps <= MAX_STEPS:
        raise ValueError(f"'task_id' {name!r} has {steps!r} steps in {STEPS_FILE}, not 1 to {MAX_STEPS}")
    return math.ceil(tokens_of(text)), steps
