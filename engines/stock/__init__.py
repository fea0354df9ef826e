"""Our policies, live signals and modelled device inside stock vLLM, whose own engine core runs the loop."""
