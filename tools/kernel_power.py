"""What measured kernels drew: the watts of `reports/cost/power.yaml`.

    python -m tools.kernel_power systems/data/b200_sxm

AIConfigurator meters the GPU while it repeats one kernel. Decodes and experts of few tokens wait for memory; prefills
and experts of many tokens compute.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

FOLDER = Path("vllm") / "0.22.0"
"""The only version of vLLM whose rows say what they drew."""
FEW = 256
"""[chosen] tokens of a step that only decodes, at most: the most requests that deployments step together."""


def drawn(folder: Path) -> Mapping[tuple[str, str], pd.Series]:
    """W of every row, by what a step does and by its kernel."""
    attention, experts = (folder / kind / FOLDER for kind in ("attention", "moe"))
    moe = pd.read_parquet(experts / "moe_perf.parquet")
    few = moe["num_tokens"] <= FEW
    rows = {
        ("prompt", "attention"): pd.read_parquet(attention / "context_attention_perf.parquet"),
        ("prompt", "experts"): moe.loc[~few],
        ("decode", "attention"): pd.read_parquet(attention / "generation_attention_perf.parquet"),
        ("decode", "experts"): moe.loc[few],
    }
    return {key: pd.Series(table["power"]) for key, table in rows.items()}


def main() -> None:
    for (phase, kernel), watts in drawn(Path(sys.argv[1])).items():
        least, low, middle, high, most = watts.quantile([0, 0.05, 0.5, 0.95, 1])
        print(
            f"{phase:6} {kernel:9} {middle:4.0f} W, median of {len(watts):,} rows (mean {watts.mean():.0f}); 5 to 95 % "
            f"{low:.0f} to {high:.0f}, all {least:.0f} to {most:.0f}"
        )


if __name__ == "__main__":
    main()
