import re
from pathlib import Path

import pytest
import yaml

TESTS = Path(__file__).parent
FAULTS: dict[str, dict[str, str]] = yaml.safe_load((TESTS / "faults.yaml").read_text())
CASES = TESTS.parents[1] / "shared" / "cases"


def test_the_tests_of_the_list_exist() -> None:
    for fault, test in [*FAULTS["cases"].items(), *FAULTS["reviews"].items()]:
        file, _, name = test.partition("::")
        assert re.search(rf"^(async )?def {name}\(", (TESTS / file).read_text(), re.M), fault


@pytest.mark.skipif(not CASES.is_dir(), reason="the cases are not part of the repository")
def test_every_case_is_on_the_list() -> None:
    assert sorted(FAULTS["cases"]) == sorted(path.parent.name for path in CASES.glob("*/run.sh"))
