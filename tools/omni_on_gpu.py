"""vLLM-Omni on one real GPU, under its own schedulers and under LiveServe's: ten minutes on an H100.

    .venv/bin/python tools/omni_on_gpu.py     in an environment with vllm==0.30.0 and vllm-omni==0.30.0 of CUDA

Dummy weights, all three stages on one GPU, and a thinker of 16 layers: times say how the two schedules compare, not how
fast the model is. Nobody has run this on a GPU yet; sizes and shares of memory are estimates.
Before: `pip install vllm==0.30.0 vllm-omni==0.30.0 && pip install --no-deps -e . && pip install -e '.[live]'`.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).absolute().parent.parent
sys.path.insert(0, str(ROOT))

from engines.devices.gpu import gpus  # noqa: E402

PORT = 8765
CALLS = "8,32"
SECONDS = "45"


def main() -> int:
    """Both schedules, one after the other; the exit status."""
    found = gpus()
    if not found:
        print(
            "this script runs vLLM-Omni on a GPU, and nvidia-smi shows none; run it on a machine with an H100.",
            file=sys.stderr,
        )
        return 2
    from engines.stock.omni.omni_params import OmniParams
    from harness.serving.omni_server import OmniServer

    print(f"on {found[0]}")
    for engine in ("vllm_omni", "liveserve"):
        params = OmniParams.model_validate({"engine": engine, "gpu": True})
        log = ROOT / "results" / f"omni-on-gpu-{engine}.log"
        log.parent.mkdir(exist_ok=True)
        with OmniServer(params, PORT, log):
            print(f"{engine}: the server is up, its log is {log}")
            url = f"ws://127.0.0.1:{PORT}/v1/realtime"
            command = ["live", url, "--dialect", "vllm_omni", "--sessions", CALLS, "--duration", SECONDS]
            out = str(ROOT / "results" / f"omni-on-gpu-{engine}")
            words = [*command, "--set", "p=0.5", "--out", out, "--label", engine]
            run = "import sys; from reports.cli import main; sys.exit(main())"
            subprocess.run([sys.executable, "-c", run, *words], cwd=ROOT, check=False)
    print("compare: rehearse compare results/omni-on-gpu-vllm_omni results/omni-on-gpu-liveserve")
    return 0


if __name__ == "__main__":
    sys.exit(main())
