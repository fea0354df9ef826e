"""A proxy before several servers of one model: what routes to them is what routes to a stage's replicas.

Any server that takes OpenAI's completions, chat completions or realtime sessions can stand behind it.
"""

from harness.proxy.proxy_config import ProxyConfig, check
from harness.proxy.proxy_server import serve

__all__ = ["ProxyConfig", "check", "serve"]
