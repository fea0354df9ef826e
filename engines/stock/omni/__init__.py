"""vLLM-Omni as it is, over modelled GPUs and under our policies: its orchestrator, stage processes, connectors and API
server run unchanged, and only the executor of a stage is ours. Needs the environment that `make omni` makes."""
