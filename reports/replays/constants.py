"""The constants of modelled GPUs that no data sheet states: the fitted and the chosen ones."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from engines.deployments import deployment_facts
from engines.devices.hardware import gpu_facts, hardware_facts
from engines.models import yaml_files
from workloads.files.yaml_file import shipped_yaml

FITTED, CHOSEN = "calibrated", "chosen"
KINDS = {"calibrated": FITTED, "fitted": FITTED, "chosen": CHOSEN}
"""Tags at the beginning of sources that are not data sheets: fitted to results of one system, to kernels of many
GPUs, chosen by us."""


@dataclass(frozen=True)
class Fact:
    """One constant of the model; `kind`: of the tag that its source begins with (`KINDS`)."""

    where: str
    name: str
    value: str
    kind: str
    source: str


def facts(
    deployment: str, gpu: str | None = None, model: str | None = None, model_facts: dict[str, Any] | None = None
) -> list[Fact]:
    """Return the calibrated, then the chosen constants of a deployment, its model and its GPU (or `gpu` and `model`
    instead); none if unknown. `model_facts`: content of the file `model`."""
    try:
        served = deployment_facts(deployment)
        hardware = hardware_facts()
        name = gpu or served["gpu"]
        used = {each: hardware[each] for each in ("efficiency", "kernels")} | {name: gpu_facts(name)}
        if any("roles" in stage for stage in served["stages"].values()):
            used["network"] = hardware["network"]
        if name != served["gpu"]:
            served.pop("reached", None)  # by GPUs that are not used
        for usual in used.values():
            for fact in served.get("reached", ()):
                usual.pop(fact, None)
        model = model or str(served["model"])
        modelled = model_facts or shipped_yaml(yaml_files("models")[model])
        for stage, limits in served["stages"].items():
            for fact in limits.get("host", ()):
                modelled["stages"].get(stage, {}).pop(fact, None)
        parts = {model: modelled, "hardware": used, deployment: served}
    except KeyError:
        return []
    tagged = [fact for where, node in parts.items() for fact in _tagged(where, "", node)]
    return sorted(tagged, key=lambda fact: fact.kind != FITTED)


def constants(deployments: Iterable[tuple[Any, ...]]) -> dict[str, list[Fact]]:
    """Return the calibrated and the chosen constants of deployments, by the arguments of `facts`."""
    all_facts = list(dict.fromkeys(fact for each in deployments for fact in facts(*each)))
    chosen = [fact for fact in all_facts if fact.kind != FITTED]
    return {"fitted": [fact for fact in all_facts if fact.kind == FITTED], "chosen": chosen}


def _tagged(where: str, path: str, node: Any) -> Iterator[Fact]:
    if not isinstance(node, dict):
        return
    if "value" not in node:
        for name, child in node.items():
            yield from _tagged(where, f"{path} {name}".strip(), child)
        return
    tag, _, source = str(node.get("source", "")).partition("]")
    kind = KINDS.get(tag.lstrip("["))
    if kind is not None:
        value = node["value"]
        yield Fact(where, path, f"{value:g}" if isinstance(value, float) else str(value), kind, source.strip())
