"""One replay of a trace in Vidur's format by Vidur: `PYTHON vidur_replay.py TRACE`.

Runs in Vidur's environment, without this repository. Prints a line of JSON: version, CPU seconds of the event loop,
simulated seconds, output tokens and requests. The published profiles of GPUs come from a server at the first start, so
a linear step time is made up here: simulated times are no evidence, and none of its regressions is evaluated. Its own
metrics are off.
"""

import csv
import json
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

from vidur.config import SimulationConfig  # type: ignore[import-not-found]
from vidur.execution_time_predictor.base_execution_time_predictor import BaseExecutionTimePredictor  # type: ignore[import-not-found]
from vidur.execution_time_predictor.execution_time_predictor_registry import ExecutionTimePredictorRegistry  # type: ignore[import-not-found]
from vidur.simulator import Simulator  # type: ignore[import-not-found]
from vidur.types import ExecutionTimePredictorType  # type: ignore[import-not-found]

STEP_MS = 8.0
"""[chosen] of a step, whoever is in it."""
TOKEN_MS = 0.02
"""[chosen] of each token of a step."""
LAYERS = 32
DATE = "replay"
"""Vidur replays the rows of one date; the trace has this one (`tools.peers.__main__.write_vidur`)."""


class LinearTime(BaseExecutionTimePredictor):
    """A step takes `STEP_MS`, and `TOKEN_MS` for each token; all of it counts as one kernel of its layers."""

    def _get_mlp_layer_up_proj_execution_time(self, batch):
        return (STEP_MS + TOKEN_MS * batch.total_num_q_tokens) / LAYERS


for name in LinearTime.__abstractmethods__:
    setattr(LinearTime, name, lambda self, batch: 0.0)
LinearTime.__abstractmethods__ = frozenset()


def main() -> None:
    table = Path(sys.argv[1])
    with table.open() as file:
        tokens = [int(row["CompletionTokenCount"]) for row in csv.DictReader(file)]
    with tempfile.TemporaryDirectory() as folder:
        options = {
            "request_generator_config_type": "trace_replay",
            "trace_request_generator_config_trace_file": table,
            "trace_request_generator_config_date": DATE,
            "trace_request_generator_config_prefill_scale_factor": 1,
            "trace_request_generator_config_time_scale_factor": 1,
            "trace_request_generator_config_max_tokens": 200_000,
            "execution_time_predictor_config_type": "linear_regression",
            "replica_config_num_pipeline_stages": 1,
            "replica_config_tensor_parallel_size": 1,
            "replica_scheduler_config_type": "sarathi",
            "sarathi_scheduler_config_batch_size_cap": 256,
            "sarathi_scheduler_config_chunk_size": 8192,
            "cache_config_num_blocks": 28_000,
            "metrics_config_output_dir": folder,
        }
        off = ("write_metrics", "enable_chrome_trace", "store_plots")
        sys.argv[1:] = [f"--no-metrics_config_{name}" for name in off]
        for name, value in options.items():
            sys.argv += [f"--{name}", str(value)]
        registry = ExecutionTimePredictorRegistry._registry
        registry[ExecutionTimePredictorType.LINEAR_REGRESSION] = LinearTime
        simulator = Simulator(SimulationConfig.create_from_cli_args())
        begun_s = time.process_time()
        simulator.run()
        cpu_s = time.process_time() - begun_s
        print(
            json.dumps(
                {
                    "version": version("vidur"),
                    "cpu_s": cpu_s,
                    "simulated_s": simulator._time,
                    "tokens": sum(tokens),
                    "requests": len(tokens),
                }
            )
        )


if __name__ == "__main__":
    main()
