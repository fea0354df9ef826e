"""The servers of a workload: the engine loop over vLLM's own scheduler, devices, model facts and one folder per
system."""
