"""The figures and tables of the OmniInfer paper."""
