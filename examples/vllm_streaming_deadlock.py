"""vLLM: streaming sessions that fill the KV pool wait for ever, though each would fit and half of them would together.

    python vllm_streaming_deadlock.py     # stock vLLM on a CPU, no weights, seconds; exit status 1: it hangs

Eight resumable requests take turns of 48 tokens in and 4 out, and keep their KV blocks between turns. Once every block
is with a session that waits, `allocate_slots` fails for the first in the queue, the loop over waiting requests ends
there, and as only running requests are preempted, nobody ever gives way. Proposed fix: pull request 49439.
"""

import os
import tempfile
from pathlib import Path

os.environ |= {"VLLM_LOGGING_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1"}

import torch
import vllm
from vllm.engine.arg_utils import EngineArgs
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

SESSIONS, TURNS, IN, OUT = 8, 12, 48, 4  # 624 tokens a session in the end, 4,992 in all
BLOCKS = 200  # of 16 tokens, one of them vLLM's own: 3,184 tokens
MODEL = """{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 64,
    "num_hidden_layers": 1, "num_attention_heads": 1, "vocab_size": 128, "max_position_embeddings": 2048}"""

with tempfile.TemporaryDirectory() as model:
    Path(model, "config.json").write_text(MODEL)
    args = EngineArgs(model, skip_tokenizer_init=True, async_scheduling=False, enable_prefix_caching=False)
    config = args.create_engine_config()
config.cache_config.num_gpu_blocks = BLOCKS
spec = FullAttentionSpec(block_size=16, num_kv_heads=1, head_size=64, dtype=torch.bfloat16)
kv = KVCacheConfig(BLOCKS, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)])
scheduler = Scheduler(config, kv, StructuredOutputManager(config), block_size=16)


def step() -> int:
    """One step of the engine, its model made up; the tokens that it computed."""
    output = scheduler.schedule()
    rows = {name: row for row, name in enumerate(output.num_scheduled_tokens)}
    requests = [scheduler.requests[name] for name in rows]
    sampled = [[1] if each.num_computed_tokens >= each.num_tokens else [] for each in requests]
    scheduler.update_from_output(output, ModelRunnerOutput(list(rows), rows, sampled))
    return output.total_num_scheduled_tokens


for turn in range(TURNS):
    params = vllm.SamplingParams(max_tokens=OUT, ignore_eos=True)
    for name in map(str, range(SESSIONS)):
        scheduler.add_request(Request(name, [1] * IN, params, None, arrival_time=turn, resumable=True))
    computed = sum(step() for _ in range(100))
    unanswered, full = scheduler.get_num_unfinished_requests(), scheduler.kv_cache_manager.usage
    print(f"vLLM {vllm.__version__} {turn=}: {computed} tokens in 100 steps; pool {full:.0%} full; ", end="")
    print(f"{unanswered} of {SESSIONS} sessions wait for an answer")
raise SystemExit(computed == 0 and unanswered > 0)
