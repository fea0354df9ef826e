"""One offline replay of a trace in Mooncake's format by NVIDIA Dynamo: `PYTHON dynamo_replay.py TRACE`.

Runs in Dynamo's environment, without this repository. Prints a line of JSON: version, CPU seconds, simulated seconds,
output tokens and requests. One worker with the limits of our stage: 28,000 blocks of 16 tokens, 256 requests and 8,192
tokens a step.
"""

import json
import sys
import time
from importlib.metadata import version

from dynamo.replay import run_trace_replay  # type: ignore[import-not-found]

ENGINE = {
    "backend": "vllm",
    "num_gpu_blocks": 28_000,
    "block_size": 16,
    "max_num_seqs": 256,
    "max_num_batched_tokens": 8192,
    "enable_prefix_caching": True,
}


def main() -> None:
    begun_s = time.process_time()
    report = run_trace_replay(
        [sys.argv[1]],
        extra_engine_args={"engine": ENGINE},
        trace_format="mooncake",
        trace_block_size=512,
        capture_per_request=True,
    )
    cpu_s = time.process_time() - begun_s
    found = report.summary
    print(
        json.dumps(
            {
                "version": version("ai-dynamo"),
                "cpu_s": cpu_s,
                "simulated_s": found["duration_ms"] / 1000,
                "tokens": found["total_output_tokens"],
                "requests": found["completed_requests"],
            }
        )
    )


if __name__ == "__main__":
    main()
