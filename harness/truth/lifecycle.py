"""What inference-perf measured of a whole experiment: `summary_lifecycle_metrics.json`, without its requests.

Its mean between tokens is of pieces of the stream, several of which may come at once, and its time per token divides
by tokens that it counted itself. So the mean here is (e2e - ttft) / (tokens asked for - 1), as inference-sim's own.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.truth.campaign import GROUPS, PROMPTS
from harness.truth.document import get, needed, number, read_json
from harness.truth.inference_perf import stages
from harness.truth.run import Server, SharedPrompts, SummaryRun
from workloads.errors import UserError

_LATENCY = {"e2e": "request_latency", "ttft": "time_to_first_token"}
_TAILS = ("mean", "p90", "p99")


def read_summary(
    path: str | Path, profile: Mapping[str, Any], name: str, workload: str, server: Server
) -> SummaryRun:
    """`profile`: what inference-perf was told; UserError without its stages, or about what the file lacks."""
    where, loads = str(path), stages(profile, str(path))
    if not loads:
        raise UserError(f"{path} is a summary of unknown load; put profile.yaml with load.stages beside it.")
    done = get(read_json(path), "successes")
    shared = get(profile, "data.shared_prefix")
    exact = get(profile, "server.ignore_eos") is True
    asked = number(shared, where, "output_len") if exact else None
    output = asked or needed(done, where, "output_len.mean")
    measured = {
        f"{metric}_{tail}": needed(done, where, f"latency.{source}.{tail}")
        for metric, source in _LATENCY.items()
        for tail in _TAILS
    }
    measured["itl_mean"] = (measured["e2e_mean"] - measured["ttft_mean"]) / max(output - 1, 1)
    return SummaryRun(
        name=name,
        server=server,
        workload=workload,
        measured=measured,
        input_tokens=needed(done, where, "prompt_len.mean"),
        output_tokens=output,
        rates=loads,
        assumed=_assumed(shared, asked is not None, number(get(read_json(path), "failures"), where, "count")),
        shared=_shared(shared, where),
    )


def _shared(shared: Any, where: str) -> SharedPrompts | None:
    if not isinstance(shared, dict):
        return None
    groups = int(number(shared, where, "num_groups", "num_unique_system_prompts") or GROUPS)
    each = int(
        number(shared, where, "num_prompts_per_group", "num_users_per_system_prompt") or PROMPTS // GROUPS
    )
    return SharedPrompts(groups, int(number(shared, where, "system_prompt_len") or 0), groups * each)


def _assumed(shared: Any, exact: bool, failed: float | None) -> tuple[str, ...]:
    said = ["When requests came is not known beyond their Poisson process."]
    if isinstance(shared, dict) and "num_groups" not in shared:
        said.append(
            "Different prompts are as inference-perf was told; its older versions ignored that and sent 100."
        )
    if not exact:
        said.append("Output tokens are those that the client counted in the text.")
    if failed:
        said.append(f"{failed:g} requests failed and are in no latency.")
    return tuple(said)
