"""A proxy before several servers of one model: which of them takes a request is one of `engines.core.routers`' rules.

Any server that takes OpenAI's completions, chat completions or realtime sessions can stand behind it.
"""

from rehearsal.harness.proxy.config import ProxyConfig, check
from rehearsal.harness.proxy.run import serve

__all__ = ["ProxyConfig", "check", "serve"]
