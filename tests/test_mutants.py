import random
import runpy
import shutil
from pathlib import Path

import yaml
from coverage import Coverage, CoverageData

import engines
from tools.mutants import EQUIVALENT, FOLDERS, LONGEST_S, ROOT, drawn, reaching, run, statement

TEXT = """LIMIT: int | None = 3


def late(value: float) -> bool:
    if value < 0:
        raise ValueError("a text for the reader")
    return (
        value >= LIMIT
    )
"""
AFTER = {"LIMIT: int | None = 4", "LIMIT: int | None = None", "if value <= 0:", "if value < 1:"}
AFTER |= {"raise ValueError(None)", "value > LIMIT"}


def test_places_are_drawn_by_seed_and_never_in_annotations_or_text() -> None:
    every = drawn({"a.py": TEXT}, 99, random.Random(1))
    assert {mutant.after for mutant in every} == AFTER and len(every) == len(AFTER)
    assert drawn({"a.py": TEXT}, 2, random.Random(5)) == drawn({"a.py": TEXT}, 2, random.Random(5))
    for mutant in every:
        assert mutant.text.replace(mutant.after, mutant.before) == TEXT


def test_a_statement_has_all_its_lines_and_not_its_block() -> None:
    assert [statement(TEXT, line) for line in (1, 4, 5, 8)] == [range(1, 2), range(4, 5), range(5, 6), range(7, 10)]


def test_a_mutant_meets_the_quickest_tests_of_its_lines_and_at_import_those_of_its_file() -> None:
    data = CoverageData(no_disk=True)
    for context, lines in {"": [1, 4], "slow": [5, 7], "quick": [5], "other": [7]}.items():
        data.set_context(context)
        data.add_lines({"a.py": lines})
    seconds = {"slow": LONGEST_S, "quick": 1.0, "other": 0.5}
    assert reaching(data, Path("a.py"), range(5, 6), {**seconds, "slow": 2.0}) == ["quick", "slow"]
    assert reaching(data, Path("a.py"), range(5, 6), seconds) == ["quick"]
    assert reaching(data, Path("a.py"), range(1, 2), seconds) == ["other", "quick"]
    assert reaching(data, Path("a.py"), range(6, 7), seconds) == []


def test_the_folders_and_files_that_are_mutated_exist() -> None:
    assert [path for path in FOLDERS if not (ROOT / path).exists()] == []


def test_each_equivalent_mutant_quotes_code_that_exists_and_gives_its_reason() -> None:
    for mutant in yaml.safe_load(EQUIVALENT.read_text()):
        code = " ".join((ROOT / mutant["file"]).read_text().split())  # a statement of several lines is quoted as one
        assert mutant["before"] in code and mutant["why"], mutant


def test_tests_meet_the_code_of_the_copy_and_not_what_was_loaded_before(tmp_path: Path) -> None:
    assert Path(engines.__file__ or "").is_relative_to(ROOT)
    tree = tmp_path / "tree"
    (tree / "engines").mkdir(parents=True)
    (tree / "test_limit.py").write_text("from engines import LIMIT\n\n\ndef test_limit():\n    assert LIMIT == 7\n")
    for limit, status in ((7, 0), (8, 1)):
        (tree / "engines" / "__init__.py").write_text(f"LIMIT = {limit}\n")
        assert run(tree, [], ["test_limit.py"], tmp_path / "seconds.json", 120) == status
        shutil.rmtree(tree / "engines" / "__pycache__", ignore_errors=True)


def test_a_fork_leaves_the_coverage_of_its_parent_as_it_is(tmp_path: Path) -> None:
    tree, code, kept = tmp_path / "tree", tmp_path / "code.py", tmp_path / "coverage.db"
    tree.mkdir()
    (tree / "test_code.py").write_text(f"import runpy\n\n\ndef test_code():\n    runpy.run_path('{code}')\n")
    code.write_text("measured = True\n")
    coverage = Coverage(data_file=kept, include=[str(code)])
    with coverage.collect():
        coverage.switch_context("before")
        runpy.run_path(str(code))
        coverage.switch_context("meanwhile")  # writes what was measured before
        assert run(tree, [], ["test_code.py"], tmp_path / "seconds.json", 120) == 0
        coverage.switch_context("after")
        runpy.run_path(str(code))
    coverage.save()
    data = CoverageData(str(kept))
    data.read()
    assert data.measured_contexts() == {"before", "after"}
