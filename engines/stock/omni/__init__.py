"""vLLM-Omni unchanged, over modelled GPUs and under our policies: its own orchestrator, stage processes, connectors and
API server; only the executor of a stage is ours. Needs the environment that `make omni` makes."""
