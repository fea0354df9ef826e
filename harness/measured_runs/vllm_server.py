"""The server of a run, vLLM: its traces of each request, its log, and the settings that it was started with.

Traces are OpenTelemetry in JSON, a document a line: a span `llm_request` for each request that ended
(`--otlp-traces-endpoint`). One that was refused or aborted has none. Facts about the server are those of its log, else
of its settings. Lines of a log may be cut off, so a value counts only with the text that follows it.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.measured_runs.document import get, number, read_lines
from harness.measured_runs.measured_run import Request, Server
from workloads.errors import UserError, existing_file
from workloads.files.json_file import read_text

PROMPT = ("gen_ai.usage.prompt_tokens", "gen_ai.usage.input_tokens")
OUTPUT = ("gen_ai.usage.completion_tokens", "gen_ai.usage.output_tokens")
TTFT = ("gen_ai.latency.time_to_first_token", "gen_ai.server.time_to_first_token")
E2E = ("gen_ai.latency.e2e", "gen_ai.server.request.duration")
QUEUE = ("gen_ai.latency.time_in_queue",)
ID = ("gen_ai.request.id", "gen_ai.response.id")
_NS = 1e9


def read_spans(path: str | Path) -> list[Request]:
    """Return the requests of a file, in its order; other spans are skipped. UserError names a broken line."""
    return [one for where, document in read_lines(path) for one in _line(document, where)]


def _line(document: Any, where: str) -> list[Request]:
    try:
        return [one for span in _spans(document) if (one := _request(span)) is not None]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise UserError(f"{where} is not an OpenTelemetry trace ({reason}); give vLLM's traces.") from None


def _spans(document: Any) -> Iterator[Any]:
    for resource in document.get("resourceSpans") or ():
        for scope in resource.get("scopeSpans") or ():
            yield from scope.get("spans") or ()


def _request(span: Any) -> Request | None:
    values = {item["key"]: _value(item.get("value") or {}) for item in span.get("attributes") or ()}
    prompt, output = get(values, *PROMPT), get(values, *OUTPUT)
    if prompt is None or output is None:
        return None
    start, end = int(span["startTimeUnixNano"]), int(span.get("endTimeUnixNano") or 0)
    e2e = _number(get(values, *E2E))
    return Request(
        id=str(get(values, *ID) or ""),
        arrival_s=start / _NS,
        prompt_tokens=int(prompt),
        output_tokens=int(output),
        ttft_s=_number(get(values, *TTFT)),
        e2e_s=(end - start) / _NS if e2e is None and end > start else e2e,
        queue_s=_number(get(values, *QUEUE)),
    )


def _value(value: dict[str, Any]) -> Any:
    """Return a value: Protobuf's JSON writes 64-bit integers as strings, some exporters as numbers."""
    return int(value["intValue"]) if "intValue" in value else next(iter(value.values()), None)


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


SETTINGS = {
    "model": ("model", "model_name", "model_id"),
    "gpu": ("gpu", "hardware", "hw", "accelerator"),
    "tp": ("tensor_parallelism", "tensor_parallel_size", "tp"),
    "max_model_len": ("max_model_len", "max_seq_len"),
    "max_num_batched_tokens": ("max_num_batched_tokens", "mbt"),
    "max_num_seqs": ("max_num_seqs",),
    "block_size": ("block_size",),
    "kv_tokens": ("kv_tokens",),
    "gpu_memory_utilization": ("gpu_memory_utilization", "gpu_mem"),
    "prefix_caching": ("enable_prefix_caching", "prefix_caching"),
    "async_scheduling": ("async_scheduling",),
    "quantization": ("quantization",),
    "vllm": ("vllm_version", "vllm"),
}
"""Field of Server -> names in vLLM's log and in exp-config.yaml; later ones are those of inference-sim's
experiments.json."""
_WHOLE = {"tp", "max_model_len", "max_num_batched_tokens", "max_num_seqs", "block_size", "kv_tokens"}
_BEGIN = "vLLM API server version"
"""Text that a server writes first. A log may hold several servers that failed to start, with other settings."""
_LOGGED = re.compile(r"(?:'(\w+)': |\b(\w+)=)'?(?:torch\.)?([\w.-]+?)'?(?=[,}})]|\.\s)")
"""A setting, in `non-default args: {'name': value}` or in `config: name=value`."""
_CONSTANTS: dict[str, Any] = {"True": True, "False": False, "None": None}


def read_log(path: str | Path) -> dict[str, Any]:
    """Return the log's settings by vLLM's names; of several servers in it, the last one's. UserError about the file.

    A server may have another path or name for its model, so the model is the name under which it is served."""
    text = read_text(existing_file(path))
    text = text[max(text.rfind(_BEGIN), 0) :]
    values = {quoted or name: _constant(value) for quoted, name, value in _LOGGED.findall(text)}
    values = {name: values[name] for name in values if name not in (*SETTINGS["model"], *SETTINGS["gpu"])}
    version = _last(r"vLLM API server version v?([0-9][\w.+-]*)|LLM engine \(v([^)\s]+)\)", text)
    if version:
        values["vllm_version"] = version
    if served := _last(r"'served_model_name': \['([^']+)'|served_model_name=([^,\s]+),", text):
        values["model"] = served
    if values.get("async_scheduling") is None and (
        state := _last(r"Asynchronous scheduling is (enabled|disabled)", text)
    ):
        values["async_scheduling"] = state == "enabled"
    tokens = _last(r"KV cache size: ([\d,]+) tokens", text)
    blocks = _last(r"num_gpu_blocks is: (\d+)\s", text)
    if tokens:
        values["kv_tokens"] = int(tokens.replace(",", ""))
        if blocks and values.get("block_size") is None and values["kv_tokens"] % int(blocks) == 0:
            values["block_size"] = values["kv_tokens"] // int(blocks)
    return values


def _last(pattern: str, text: str) -> str:
    """Return the first matching group of the last match; "" without one."""
    matches = [next(group for group in match.groups() if group) for match in re.finditer(pattern, text)]
    return matches[-1] if matches else ""


def _constant(text: str) -> Any:
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    return float(text) if re.fullmatch(r"\d*\.\d+|\d+\.", text) else int(text) if text.isdigit() else text


def server_of(config: Mapping[str, Any], log: Mapping[str, Any], model: str | None, where: str) -> Server:
    """Return the server. `config` and `log` may be empty; `model` is the client's, "" without any."""
    fields: dict[str, Any] = {"model": model or ""}
    for field, names in SETTINGS.items():
        first, then = (config, log) if field == "model" else (log, config)
        stated = then if get(first, *names) is None else first
        value = number(stated, where, *names) if field in _WHOLE else get(stated, *names)
        if value is not None:
            fields[field] = int(value) if field in _WHOLE else value
    return Server(**{**fields, "model": str(fields["model"])})
