"""Energy counters by the interfaces that they have: files of a test for RAPL, NVML's documented calls for GPUs."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.experiments.experiment import Experiment, expand
from harness.live.run.measure import _meter
from harness.metrics.power import POWER_DEFINITIONS, power_metrics
from harness.records.energy_counters import counters
from harness.records.power_meter import IDLE_S, PERIOD_S, PowerMeter
from reports.tables.columns import column_for, shown
from tests.engines import replays
from tests.powercap import MOST_UJ, drawing, write, zones
from workloads.errors import UserError

UJ, MJ = 1e6, 1e3


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return zones(tmp_path / "powercap")


def test_packages_and_memory_add_up_and_nothing_is_counted_twice(root: Path):
    found = counters(f"rapl:{root}")
    assert [each.name for each in found] == [
        "intel-rapl:0 package-0",
        "intel-rapl:0:1 dram",
        "intel-rapl:1 package-1",
    ]
    assert [each.joules() for each in found] == [0.0, 0.0, 0.0]
    write(root / "intel-rapl:0" / "energy_uj", 1_500_000 + 7)
    assert found[0].joules() == pytest.approx(1.5)


@given(st.lists(st.integers(0, MOST_UJ - 1), max_size=30), st.integers(0, MOST_UJ - 1))
def test_a_count_that_begins_anew_goes_on(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[int], first: int
):
    root = zones(tmp_path_factory.mktemp("powercap"))
    path = root / "intel-rapl:0" / "energy_uj"
    write(path, first)
    package = counters(f"rapl:{root}")[0]
    for total in itertools.accumulate(drawn):
        write(path, (first + total) % MOST_UJ)
        assert package.joules() == pytest.approx(total / UJ)


@pytest.mark.parametrize(
    ("power", "said"),
    [
        ("watts", "'watts' is no counter of energy; write rapl"),
        ("rapl:", "'rapl:' is no counter of energy"),
        ("rapl:/nowhere", "/nowhere has no zone of a processor"),
        ("rapl:{root}+rapl:{root}", "twice; name each counter once"),
    ],
)
def test_what_is_no_counter_is_told_in_one_sentence(root: Path, power: str, said: str):
    with pytest.raises(UserError, match=said.replace("[", r"\[")) as told:
        counters(power.format(root=root))
    assert str(told.value).endswith(".") and "\n" not in str(told.value)


def test_a_counter_that_cannot_be_read_is_named_with_what_helps(root: Path):
    (root / "intel-rapl:0" / "energy_uj").unlink()
    with pytest.raises(
        UserError, match=r"intel-rapl:0/energy_uj cannot be read .*run as root or let this user read it"
    ):
        counters(f"rapl:{root}")
    (root / "intel-rapl:0" / "energy_uj").write_text("much\n")
    with pytest.raises(UserError, match="holds 'much' and no count of µJ"):
        counters(f"rapl:{root}")


class NVMLError(Exception):
    pass


class ScriptedNvml:
    """The calls of NVML's API reference that are made, with GPUs of a test."""

    NVMLError = NVMLError

    def __init__(self, *energies_mj: list[int] | None, driver: bool = True) -> None:
        self.energies_mj, self.driver = energies_mj, driver

    def nvmlInit(self) -> None:
        if not self.driver:
            raise NVMLError("NVML Shared Library Not Found")

    def nvmlDeviceGetCount(self) -> int:
        return len(self.energies_mj)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> SimpleNamespace:
        if index >= len(self.energies_mj):
            raise NVMLError("Invalid Argument")
        return SimpleNamespace(index=index)

    def nvmlDeviceGetName(self, handle: SimpleNamespace) -> str | bytes:
        return b"NVIDIA H100" if handle.index else "NVIDIA H100"  # older bindings return bytes

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: SimpleNamespace) -> int:
        told = self.energies_mj[handle.index]
        if told is None:
            raise NVMLError("Not Supported")
        return told.pop(0)


def test_gpus_count_mj_since_the_driver_was_loaded():
    nvml = ScriptedNvml([5_000_000, 5_000_250], [9, 4_009])
    found = counters("nvml", nvml)
    assert [each.name for each in found] == ["gpu 0 NVIDIA H100", "gpu 1 NVIDIA H100"]
    assert [each.joules() for each in found] == pytest.approx([250 / MJ, 4.0])
    (one,) = counters("nvml:1", ScriptedNvml(None, [1, 2_001]))
    assert one.name == "gpu 1 NVIDIA H100" and one.joules() == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("power", "nvml", "said"),
    [
        (
            "nvml",
            ScriptedNvml(driver=False),
            "NVML does not start .NVML Shared Library Not Found.; run where NVIDIA's",
        ),
        ("nvml", ScriptedNvml(), "NVML finds no GPU"),
        (
            "nvml",
            ScriptedNvml(None),
            "gpu 0 NVIDIA H100 does not tell its energy .Not Supported.; GPUs since Volta do",
        ),
        ("nvml:3", ScriptedNvml([1]), "GPU 3 cannot be opened .Invalid Argument.; name one that is there"),
        ("nvml:first", ScriptedNvml([1]), "nvml:first is no GPU; write its number"),
    ],
)
def test_a_gpu_that_does_not_tell_is_no_number(power: str, nvml: Any, said: str):
    with pytest.raises(UserError, match=said):
        counters(power, nvml)


def test_the_calls_are_those_of_the_package():
    pynvml = pytest.importorskip("pynvml")
    for name in dir(ScriptedNvml):
        assert not name.startswith("nvml") or callable(getattr(pynvml, name))
    assert issubclass(pynvml.NVMLError, Exception)


class Steady:
    """Draws so many W on a clock that it is told."""

    name = "steady"

    def __init__(self, watts: float, clock: Callable[[], float], until_s: float = float("inf")) -> None:
        self.watts, self.clock, self.until_s = watts, clock, until_s

    def joules(self) -> float:
        if self.clock() > self.until_s:
            raise UserError("power: it has gone; plug it in.")
        return self.watts * self.clock()


def test_idle_is_read_for_its_time_and_told_apart():
    now = [100.0]
    meter = PowerMeter(
        [Steady(30.0, lambda: now[0])], lambda: now[0], lambda s: now.__setitem__(0, now[0] + s)
    )
    meter.idle()
    with meter:
        now[0] += 2.0
    found = meter.table(110.0).to_pandas()
    at_rest = found.loc[found["idle"]]
    assert at_rest["t_s"].iloc[0] == -10.0 and len(at_rest) == pytest.approx(IDLE_S / PERIOD_S + 1, abs=1)
    assert (~found["idle"]).sum() >= 2 and set(found["counter"]) == {"steady"}


def test_a_counter_that_fails_in_between_fails_the_run():
    now = [0.0]
    meter = PowerMeter([Steady(30.0, lambda: now[0], until_s=1.0)], lambda: now[0])
    with pytest.raises(UserError, match="it has gone"), meter:
        now[0] = 2.0


def readings(load_s: list[float], watts: dict[str, tuple[float, float]]) -> pd.DataFrame:
    """Of counters that draw so many W at rest, for 5 s before -1 s, and under load."""
    rows: list[tuple[float, str, float, bool]] = []
    for name, (rest_w, load_w) in watts.items():
        rows += [(at_s, name, rest_w * (at_s + 6), True) for at_s in (-6.0, -3.0, -1.0)]
        rows += [(at_s, name, 5 * rest_w + load_w * (at_s - load_s[0]), False) for at_s in load_s]
    return pd.DataFrame(rows, columns=["t_s", "counter", "joules", "idle"])


REQUESTS = pd.DataFrame(
    {
        "turn": [0, 1, 0, 1],
        "status": ["completed", "barged_in", "failed", "completed"],
        "heard_s": [30.0, 15.0, None, 45.0],
    }
)


def test_energy_is_that_of_the_run_alone_for_turns_that_ended_and_sound_that_was_heard():
    found = power_metrics(readings([-0.5, 4.0, 10.5], {"a": (10, 50), "b": (5, 25)}), REQUESTS, 10.0)
    assert list(found) == list(POWER_DEFINITIONS)
    values = {name: metric.value for name, metric in found.items()}
    assert values == pytest.approx(
        {
            "idle_power": 15.0,
            "mean_power": 75.0,
            "energy": 750.0,
            "energy_per_turn": 250.0,
            "active_energy_per_turn": 200.0,
            "energy_per_audible_minute": 500.0,
            "active_energy_per_audible_minute": 400.0,
        }
    )
    assert found["energy_per_turn"].n == 3 and found["energy"].unit == "J"


def test_they_stand_in_the_table_of_a_run_that_has_them():
    metrics = {"ttft_p50": 0.1, "send_slip_p99": 0.001, "idle_power": 15.0, "energy_per_turn": 250.0}
    headings = {
        f"{column.heading}, {column.unit}": column.text(metrics.get(column.metric))
        for column in shown([metrics])
    }
    assert headings["energy, J/turn"] == "250.0" and headings["at rest, W"] == "15.0"
    assert "energy, J/turn" not in {f"{each.heading}, {each.unit}" for each in shown([{"ttft_p50": 0.1}])}
    assert {column_for(name, ()).unit for name in POWER_DEFINITIONS} == {"W", "J"}


def test_what_the_readings_do_not_span_is_missing():
    late = power_metrics(readings([0.5, 10.5], {"a": (10, 50)}), REQUESTS, 10.0)
    assert late["idle_power"].value == pytest.approx(10.0)
    assert {late[name].value for name in POWER_DEFINITIONS if name != "idle_power"} == {None}
    frames = power_metrics(readings([-0.5, 10.5], {"a": (10, 50)}), REQUESTS.drop(columns="turn"), 10.0)
    assert frames["energy"].value == pytest.approx(500.0) and frames["energy_per_turn"].value is None


def test_power_of_a_model_and_of_another_machine_are_refused(root: Path):
    modelled = Experiment(
        name="modelled", engines=["vllm_omni"], workload="voice", set={"power": f"rapl:{root}"}
    )
    with pytest.raises(UserError, match="device virtual models one; leave power out"):
        expand(modelled)
    with pytest.raises(UserError, match=r"the server is on '192\.0\.2\.1'; run this command there"):
        _meter(f"rapl:{root}", "ws://192.0.2.1:8765/v1/realtime")
    assert _meter(f"rapl:{root}", "ws://localhost:8765/v1/realtime") is not None
    assert _meter(None, "ws://192.0.2.1:8765") is None


@pytest.fixture
def drawn(root: Path) -> Iterator[Path]:
    with drawing(root, 20.0):
        yield root


def test_a_run_on_the_wall_clock_tells_what_was_drawn_beside_it(drawn: Path):
    trace = replays.voice_trace(
        sessions=2, turns=1.0, utterance_s=0.2, think_s=0.1, rate=10.0, reply_tokens=6
    )
    ran = replays.replay("vllm_omni", {}, {}, {"power": f"rapl:{drawn}"}, trace, 7, device="paced")
    assert ran.power is not None
    table = ran.power.to_pandas()
    requests = pd.DataFrame({"turn": [0], "status": ["completed"], "heard_s": [6.0]})
    found = power_metrics(table, requests, ran.run_end_s)
    assert (table.loc[table["idle"], "t_s"] < 0).all() and table["t_s"].max() >= ran.run_end_s
    # The writer of these files is a thread of a busy machine: what it wrote is exact, and when is not.
    assert found["energy"].value == pytest.approx(found["mean_power"].value * ran.run_end_s)
    assert 0 < found["energy"].value <= table["joules"].max() * 3
