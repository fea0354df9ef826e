"""An engine behind a WebSocket endpoint: in this process (`serve`), or in one of its own (`ServerProcess`).

The same engine loop as in a replay, on the wall clock; `engines.endpoint` is its WebSocket side. Nothing here loads
vLLM or torch until it serves.
"""

from harness.serving.engine_server import Ready, Status, leave, serve
from harness.serving.process import ServerProcess
from harness.serving.serve_config import DEVICES, ServeConfig, check, parameters

__all__ = ["DEVICES", "Ready", "ServeConfig", "ServerProcess", "Status", "check", "leave", "parameters", "serve"]
