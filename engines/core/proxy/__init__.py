"""OmniProxy's rules (OmniInfer section 5), a file each: pure, for virtual time and for sockets alike.

Nothing here knows vLLM, a clock or a socket: the time comes as an argument (s), a prompt as a sequence of integers.
"""
