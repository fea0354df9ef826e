"""OmniProxy (OmniInfer section 5): rules that know no vLLM, and `deferral`, by which a pipeline follows one of them.

The rules are for virtual time and for sockets alike: the time comes as an argument (s), a prompt as a sequence of
integers.
"""
