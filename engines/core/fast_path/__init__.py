"""The decode fast path: most rows of most steps bypass vLLM's scheduler, and no result changes.

A decode row reads a context, computes one token and writes it into the request's last KV block. For most of these rows
vLLM's `schedule` and `update_from_output` would do two things: count up `num_computed_tokens` and append a token id.
Such a row is a *simple decode*. On a modelled device, which needs rows only, it bypasses the scheduler; vLLM sees
everything else. `StageEngine` does not know: it calls `SchedulerPath.schedule`, `execute` and `update`
(`vllm_adapter/scheduler_path.py`) for each step, and `DecodeFastPath` implements these.

A row is simple (`vllm_adapter/simple_decode.py`, `find` and `until`) when vLLM would do no more than that:

* it samples, and not the request's last token; the request has no stop token ids and no encoder inputs;
* its request holds the block that it writes to;
* with prefix caching, it does not fill that block, because vLLM caches a full block;
* no block leaves the window of a layer.

One step on the fast path (`decode_fast_path.py`):

1. `schedule` looks at the running requests in vLLM's order. Simple decodes become rows at once. A decode that only a
   block keeps from being simple (`full` in the code) is synced to vLLM; vLLM's KV manager caches its full block or
   gives it the next one (`through_full_block`), and it bypasses vLLM again in the same step. All others (prompts, last
   tokens, waiting requests) go through vLLM's `schedule`, for which the tokens and slots of the simple decodes are set
   aside. `full` goes with the others if the others need blocks in this step, or if KV is stored on the host and vLLM
   is asked anyway.
2. The device executes all rows together, in the order in which vLLM would have listed them.
3. `update` gives vLLM the tokens of its own rows. It keeps the ids of simple decodes in `SimpleDecode.unsynced`.

Four shortcuts build on that:

* **Summed decodes** (`summed_decodes.py`, `unstreamed_tokens.py`): the row of a simple decode is not listed for a
  known number of steps. The step holds sums over such rows (`SummedRows`), for which the device computes the same time.
  Ids of a modelled device count up, so that all tokens are made later at once. A replica sums rows only if it has no
  policy (`DecodeFastPath.attach` has all conditions), and only rows whose tokens nobody gets one by one: the next
  tokens wait for the request's next message, or the decode batch delivers them.
* **Decode batch** (`decode_batch.py`, `batch_listeners.py`): summed decodes whose listeners get one token a step. One
  call tells all listeners of a step's tokens, as long as no request joins or leaves.
* **Steady steps** (`steady_steps.py`), on replicas that sum no rows: all rows are simple, the plan is as in the step
  before, and vLLM has nothing else to look at, so the same rows are scheduled again (`SteadyRows`). If nothing has
  arrived either, the device's callback begins the next step, and only time and contexts are computed again
  (`SteadySteps`).

* **One-step path** (`one_step_path.py`): the requests of a stage without KV, such as a vocoder's chunks, end with
  their first step. While all that wait fit into a step, vLLM does not learn of them.

Why the bytes stay the same:

* A request is synced to vLLM (`sync_to_vllm`: vLLM gets its tokens and counts) before vLLM reads these: at an abort, a
  preemption, the end of a block and its last token. It bypasses vLLM again when its next row is simple.
* In one case vLLM learns of a full block a step later: a row of the decode batch that fills a block stays summed if no
  request that vLLM could take in now begins with that block (`could_be_hit`). vLLM learns of the block when the decode
  needs the next one, or earlier, if a router looks into the prefix cache (`cache_full_blocks`).
* When the budget or the free blocks might not do for all rows, vLLM might pass over or preempt a request. Then every
  request is synced, and vLLM schedules all of them. Only the last running request may get less, as none comes after.
* vLLM looks at waiting requests whenever it could take one in (`StageScheduler.would_look`), and gives out blocks in
  its own order.
* A policy's view takes the counts of a request that bypasses vLLM from its `SimpleDecode` (`engines/core/view.py`).
* Rows, tokens and log entries keep vLLM's order; each step has the same rows, so the same time on the device.

`tests/engines/test_fast_paths.py` compares events, steps, counters and tokens with and without the fast path, on
generated workloads. Only the adapter imports vLLM: what the fast path needs of it is `vllm_adapter/simple_decode.py`.
"""
