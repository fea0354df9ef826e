"""vLLM-Omni's own command line on modelled GPUs, with our pipelines known to it.

`python -m engines.stock.omni PORT JSON` serves what `OmniParams` say on 127.0.0.1. The environment variable `FOLDER`
names a folder for the files that its processes share. The server ends when its standard input ends. Anything else is
a command of vLLM-Omni, such as `python -m engines.stock.omni bench serve --omni`.
"""

# pyright: reportMissingImports=false
import json
import os
import signal
import sys
import threading
from pathlib import Path

from engines.stock.plugin import SWITCH


def main() -> None:
    """Run vLLM-Omni; its stages are processes, which inherit the environment."""
    serves = len(sys.argv) == 3 and sys.argv[1].isdecimal()
    if not (serves and json.loads(sys.argv[2]).get("gpu")):
        os.environ[SWITCH] = "1"
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("VLLM_HOST_IP", "127.0.0.1")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    # Before anything that imports torchvision: the hook of our platform makes that possible.
    from vllm_omni.entrypoints.cli.main import main as omni_main

    from engines.stock.omni.pipeline import register
    from engines.stock.omni.shared_gpu import FOLDER

    register()
    if serves:
        threading.Thread(target=end_with_parent, daemon=True, name="parent").start()
        sys.argv[1:] = serve_arguments(int(sys.argv[1]), sys.argv[2], Path(os.environ[FOLDER]))
    sys.argv[0] = "vllm"
    omni_main()


def end_with_parent() -> None:
    """Kill this process and its stages, which are one process group, when standard input ends."""
    sys.stdin.buffer.read()
    os.killpg(0, signal.SIGKILL)


def serve_arguments(port: int, values: str, folder: Path) -> list[str]:
    """Return arguments of `vllm` that serve `OmniParams` given as JSON; files of the server are in `folder`."""
    from engines.stock.omni.duplex_signals import attach
    from engines.stock.omni.model import qwen3_omni_folder, qwen3_tts_folder
    from engines.stock.omni.omni_params import HOST, OmniParams
    from engines.stock.omni.pipeline import deploy

    params = OmniParams.model_validate_json(values)
    file = folder / "deploy.yaml"
    file.write_text(json.dumps(deploy(params)))  # YAML reads JSON
    served = params.served
    longest = max(stage.max_model_len for stage in served.stages.values())
    if served.speech_only:
        model, name = qwen3_tts_folder(longest), "qwen3-tts"
    else:
        sized = tuple(stage.decoder for stage in served.stages.values()) if params.gpu else ()
        model, name = qwen3_omni_folder(longest, sized), "qwen3-omni"
        attach(signals=not params.own_schedule)
    signals = [] if params.own_schedule else ["--middleware", "engines.stock.omni.live_signals.http"]
    where = ["--host", HOST, "--port", str(port), "--deploy-config", str(file)]
    return ["serve", model, "--served-model-name", name, "--omni", *where, *signals]


if __name__ == "__main__":
    main()
