"""The decode fast path: most rows of most steps bypass vLLM's scheduler, and no result changes.

A decode row reads a context, computes one token and writes it into the request's last KV block. While that block has
room and the token is not the last one, vLLM's `schedule` and `update_from_output` would do two things for the row:
count up `num_computed_tokens` and append a token id. Such a row is a *simple decode*. On a modelled device, which needs
rows only, it bypasses the scheduler; vLLM sees everything else. `StageEngine` does not know: it calls
`SchedulerPath.schedule`, `execute` and `update` for each step, and `DecodeFastPath` implements these.

One step on the fast path (`decode_fast_path.py`):

1. `schedule` looks at the running requests in vLLM's order. Simple decodes become rows at once. A decode whose block is
   full gets its next block by vLLM's own call. All others (prompts, last tokens, waiting requests) go through
   vLLM's `schedule`, for which the tokens and slots of the simple decodes are set aside.
2. The device executes all rows together, in the order in which vLLM would have listed them.
3. `update` gives vLLM the tokens of its own rows. It keeps the ids of simple decodes in `SimpleDecode.unsynced`.

Three shortcuts build on that:

* **Summed decodes** (`summed_decodes.py`, `unstreamed_tokens.py`): where nobody has to be told of a row's next tokens
  one by one, the row is not listed for a known number of steps. The step holds sums over such rows (`SummedRows`), of
  which the device computes the same time. Ids of a modelled device count up, so that all tokens are made later at once.
* **Decode batch** (`decode_batch.py`, `batch_listeners.py`): summed decodes whose listeners get one token a step. One
  call tells all listeners of a step's tokens, as long as no request joins or leaves.
* **Steady steps** (`steady_steps.py`): the rows and the plan are as in the step before. The device's callback begins
  the next step, and only time and contexts are computed again.

Why the bytes stay the same:

* A request is synced to vLLM (`sync_to_vllm`: vLLM gets its tokens and counts) before vLLM reads it: at an abort, a
  preemption, a full block and its last token. It bypasses vLLM again when its next row is simple. A lookup in the
  prefix cache first makes all full blocks known (`cache_full_blocks`).
* When the budget or the free blocks might not do for all rows, vLLM might pass over or preempt a request. Then every
  request is synced, and vLLM schedules all of them.
* vLLM looks at waiting requests whenever it could take one in (`StageScheduler.would_look`); blocks are taken in its
  order; a full block is cached before a request that could hit it is looked at (`could_be_hit`).
* Rows, tokens and log entries keep vLLM's order; each step has the same rows, so the same time on the device.

`tests/engines/test_fast_paths.py` compares events, steps, counters and tokens with and without the fast path, on
generated workloads. Only the adapter imports vLLM: what the fast path needs of it is `vllm_adapter/simple_decode.py`.
"""
