"""Attention over a session's last W tokens and its first S (paper section 4.1, appendix A).

Query t sees key k iff k <= t and (k < S or k > t - W): vLLM's window, W tokens with the query's own. The paper writes
[t-W, t], one key more.
"""
