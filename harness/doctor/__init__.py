"""What this machine can run, and why not: each check is a state and a sentence that says what to do.

Nothing heavy is loaded here: torch, and vLLM where that is asked for, are tried in a process of their own
(`harness.doctor.probe`), which may crash or hang without harm. The network is left alone.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from engines.devices import gpu
from harness.doctor import data, machine, program
from harness.doctor.check import Check
from harness.doctor.program import Answers, build, probe

SMALLEST_CAPABILITY = 7.5  # [vLLM documentation since 0.21: "GPU: compute capability 7.5 or higher"]


def examine(folder: Path | None = None, load: bool = False) -> Iterator[Check]:
    """Every check as soon as it is known, the devices last; `folder` of recordings or data sets is looked into.

    `load`: vLLM is loaded as well, which takes 10 s and more. UserError when `folder` is no readable folder.
    """
    looked = data.checks(folder)  # first: bad input is told at once
    with probe(load) as answers:
        here = machine.checks()
        yield from here
        yield from looked
        found = []
        for check in program.checks(answers, load):
            found.append(check)
            yield check
        yield from _devices(found, here, answers)


def runs_virtual(checks: Iterable[Check]) -> bool:
    """Whether a run in virtual time is possible."""
    return any(check.what == "virtual" and check.state == "ok" for check in checks)


def _devices(found: list[Check], here: list[Check], answers: Answers) -> list[Check]:
    lacking = [check.what for check in found if check.state != "ok"]
    if lacking:
        why = f"first mend: {', '.join(lacking)}"
        return [Check("devices", name, "broken", why) for name in ("virtual", "cpu", "cuda")]
    kind = (build() or ("",))[0]
    unfit = [check.what for check in here if check.group == "machine" and check.state != "ok"]
    if kind != "cpu":
        cpu = Check(
            "devices",
            "cpu",
            "missing",
            "vLLM is built for cuda; `make bench DEVICE=cpu` has its own environment",
        )
    elif unfit:
        cpu = Check("devices", "cpu", "missing", f"first mend: {', '.join(unfit)}")
    else:
        cpu = Check("devices", "cpu", "ok", "real execution of small models on this processor")
    virtual = Check(
        "devices", "virtual", "ok", "modelled GPUs in virtual time; device paced: on the wall clock"
    )
    return [virtual, cpu, _cuda(kind, answers["torch"])]


def _cuda(kind: str, torch: dict[str, Any]) -> Check:
    found = gpu.gpus()
    if not found:
        return Check("devices", "cuda", "missing", gpu.why_none())
    names = "; ".join(map(str, found))
    if max(_number(one.capability) for one in found) < SMALLEST_CAPABILITY:
        why = f"{names}: vLLM's CUDA build needs compute capability {SMALLEST_CAPABILITY}; use a newer GPU"
        return Check("devices", "cuda", "missing", why)
    if kind != "cuda":
        why = f"{names}; this environment has vLLM for cpu: `make bench DEVICE=cuda` makes one for cuda"
        return Check("devices", "cuda", "missing", why)
    if not torch["cuda_available"]:
        why = f"{names}, but torch (CUDA {torch['cuda_build']}) cannot use it; install a newer driver"
        return Check("devices", "cuda", "broken", why)
    return Check("devices", "cuda", "ok", names)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
