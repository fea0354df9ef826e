"""Systems that ConServe's cards compare."""

ONLINE_ONLY, NON_PREEMPTIVE, SARATHI, OURS = "vllm_omni_wo", "non_preemptive", "sarathi_p", "conserve"
DISTSERVE = "distserve_p"
CO_SERVERS = [NON_PREEMPTIVE, SARATHI, OURS]
"""Online-Only is vLLM's own chunked prefill with the batch left out of the trace."""
NAMES = {
    ONLINE_ONLY: "Online-Only",
    NON_PREEMPTIVE: "Non-Preemptive",
    SARATHI: "Sarathi-P",
    DISTSERVE: "DistServe-P",
    OURS: "ConServe",
}
