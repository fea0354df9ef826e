"""The server of a run, vLLM: its traces of each request, its log, and the settings that it was started with.

Traces are OpenTelemetry in JSON, a document a line: a span `llm_request` for each request that ended
(`--otlp-traces-endpoint`). One that was refused or aborted has none. Facts about the server are those of its log, else
of its settings. Lines of a log may be cut off, so a value counts only with the text that follows it.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from harness.measured_runs.document import get, number
from harness.measured_runs.measured_run import Request, Server
from workloads.errors import UserError, existing_file
from workloads.files.json_file import parse, read_text

PROMPT = ("gen_ai.usage.prompt_tokens", "gen_ai.usage.input_tokens")
OUTPUT = ("gen_ai.usage.completion_tokens", "gen_ai.usage.output_tokens")
TTFT = ("gen_ai.latency.time_to_first_token", "gen_ai.server.time_to_first_token")
E2E = ("gen_ai.latency.e2e", "gen_ai.server.request.duration")
QUEUE = ("gen_ai.latency.time_in_queue",)
ID = ("gen_ai.request.id", "gen_ai.response.id")
_NS = 1e9


def read_spans(path: str | Path) -> list[Request]:
    """Return the requests of a file, in its order; other spans are skipped. UserError names a broken line."""
    path = existing_file(path)
    found = []
    for at, line in enumerate(read_text(path).split("\n"), 1):
        if line.strip():
            found += _line(line, f"{path}, line {at},")
    return found


def _line(line: str, where: str) -> list[Request]:
    try:
        document = parse(line)
    except ValueError as error:
        raise UserError(f"{where} is not JSON ({error}); correct the line or take it out.") from None
    try:
        return [one for span in _spans(document) if (one := _request(span)) is not None]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        said = f"{type(error).__name__}: {error}"
        raise UserError(f"{where} is not an OpenTelemetry trace ({said}); give vLLM's traces.") from None


def _spans(document: Any) -> Iterator[Any]:
    for resource in document.get("resourceSpans") or ():
        for scope in resource.get("scopeSpans") or ():
            yield from scope.get("spans") or ()


def _request(span: Any) -> Request | None:
    values = {item["key"]: _value(item.get("value") or {}) for item in span.get("attributes") or ()}
    prompt, output = _first(values, PROMPT), _first(values, OUTPUT)
    if prompt is None or output is None:
        return None
    start, end = int(span["startTimeUnixNano"]), int(span.get("endTimeUnixNano") or 0)
    e2e = _number(_first(values, E2E))
    return Request(
        id=str(_first(values, ID) or ""),
        arrival_s=start / _NS,
        prompt_tokens=int(prompt),
        output_tokens=int(output),
        ttft_s=_number(_first(values, TTFT)),
        e2e_s=(end - start) / _NS if e2e is None and end > start else e2e,
        queue_s=_number(_first(values, QUEUE)),
    )


def _value(value: dict[str, Any]) -> Any:
    """Return a value: Protobuf's JSON writes 64-bit integers as strings, some exporters as numbers."""
    return int(value["intValue"]) if "intValue" in value else next(iter(value.values()), None)


def _first(values: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((values[name] for name in names if values.get(name) is not None), None)


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


DEFAULT_BLOCK = 16
"""Tokens; vLLM's default on GPUs."""
_NAMES = {
    "max_model_len": ("max_model_len", "max_seq_len"),
    "max_num_batched_tokens": ("max_num_batched_tokens",),
    "max_num_seqs": ("max_num_seqs",),
    "tp": ("tensor_parallel_size",),
    "gpu_memory_utilization": ("gpu_memory_utilization",),
    "prefix_caching": ("enable_prefix_caching",),
    "enforce_eager": ("enforce_eager",),
    "async_scheduling": ("async_scheduling",),
    "dtype": ("dtype",),
    "quantization": ("quantization",),
    "block_size": ("block_size",),
}
"""Field of Server -> vLLM's names, in `non-default args: {'name': value}` and in `config: name=value`."""
_BEGIN = "vLLM API server version"
"""Text that a server writes first. A log may hold several servers that failed to start, with other settings."""
_CONSTANTS: dict[str, Any] = {"True": True, "False": False, "None": None}


def read_log(path: str | Path) -> dict[str, Any]:
    """Return the fields of Server that the log states; of several servers in it, the last one's. UserError about the
    file."""
    text = read_text(existing_file(path))
    text = text[max(text.rfind(_BEGIN), 0) :]
    found = {field: value for field, names in _NAMES.items() if (value := _setting(text, names)) is not None}
    version = _last(r"vLLM API server version v?([0-9][\w.+-]*)|LLM engine \(v([^)\s]+)\)", text)
    if version:
        found["vllm"] = version
    if served := _last(r"'served_model_name': \['([^']+)'|served_model_name=([^,\s]+),", text):
        found["model"] = served
    if "async_scheduling" not in found and (
        said := _last(r"Asynchronous scheduling is (enabled|disabled)", text)
    ):
        found["async_scheduling"] = said == "enabled"
    tokens = _last(r"KV cache size: ([\d,]+) tokens", text)
    blocks = _last(r"num_gpu_blocks is: (\d+)\s", text)
    if tokens:
        found["kv_tokens"] = int(tokens.replace(",", ""))
        if blocks and "block_size" not in found and found["kv_tokens"] % int(blocks) == 0:
            found["block_size"] = found["kv_tokens"] // int(blocks)
    return found


def _last(pattern: str, text: str) -> str:
    """Return the first matching group of the last match; "" without one."""
    matches = [next(group for group in match.groups() if group) for match in re.finditer(pattern, text)]
    return matches[-1] if matches else ""


def _setting(text: str, names: tuple[str, ...]) -> Any:
    name = "|".join(names)
    said = _last(rf"(?:'(?:{name})': |\b(?:{name})=)'?(?:torch\.)?([\w.-]+?)'?(?=[,}})]|\.\s)", text)
    if not said:
        return None
    if said in _CONSTANTS:
        return _CONSTANTS[said]
    return float(said) if "." in said else int(said) if said.isdigit() else said


CONFIG = {
    "model": ("model", "model_name", "model_id"),
    "gpu": ("gpu", "hardware", "hw", "accelerator"),
    "tp": ("tensor_parallelism", "tensor_parallel_size", "tp"),
    "max_model_len": ("max_model_len",),
    "max_num_batched_tokens": ("max_num_batched_tokens", "mbt"),
    "max_num_seqs": ("max_num_seqs",),
    "block_size": ("block_size",),
    "gpu_memory_utilization": ("gpu_memory_utilization", "gpu_mem"),
    "prefix_caching": ("enable_prefix_caching", "prefix_caching"),
    "async_scheduling": ("async_scheduling",),
    "enforce_eager": ("enforce_eager",),
    "dtype": ("dtype",),
    "quantization": ("quantization",),
    "vllm": ("vllm_version", "vllm"),
}
"""Field of Server -> names in exp-config.yaml; the later ones are those of inference-sim's experiments.json."""
_WHOLE = {"tp", "max_model_len", "max_num_batched_tokens", "max_num_seqs", "block_size"}


def server_of(config: Mapping[str, Any], log: Mapping[str, Any], model: str | None, where: str) -> Server:
    """Return the server. `config` and `log` may be empty; `model` is the client's, "" without any."""
    stated = {field: _stated(config, field, names, where) for field, names in CONFIG.items()}
    found = {field: value for field, value in stated.items() if value is not None}
    found |= {field: value for field, value in log.items() if field != "model" and value is not None}
    name = found.pop("model", None) or log.get("model") or model or ""
    found.setdefault("block_size", DEFAULT_BLOCK)
    known = {field.name for field in fields(Server)}
    return Server(model=str(name), **{field: value for field, value in found.items() if field in known})


def _stated(config: Mapping[str, Any], field: str, names: tuple[str, ...], where: str) -> Any:
    if field in _WHOLE:
        value = number(config, where, *names)
        return None if value is None else int(value)
    return get(config, *names)
