import pandas as pd
import pytest

from reports.replays import gpu


@pytest.mark.parametrize(("second_s", "most"), [(0.5, 168.0), (1.0, 84.0)])
def test_steps_use_the_sms_of_both_while_they_overlap(second_s: float, most: float) -> None:
    steps = pd.DataFrame({"t_s": [0.0, second_s], "dt_s": 1.0, "sms": 84.0})
    assert gpu.most_at_once(steps) == most
