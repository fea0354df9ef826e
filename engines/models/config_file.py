"""A published config.json as one of our model files, with the facts that it lacks."""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from engines.models import Decoder, LatentAttention
from engines.models.hugging_face import Config, decoder_of, integer, is_fp8, listed, method_of, text_config
from workloads.errors import UserError, existing_file

CONFIG, QUANTISED = "config.json", "hf_quant_config.json"
"""The files of a checkpoint that are read; ModelOpt writes the second next to the first."""

TYPES = {"bfloat16": 2, "float16": 2, "half": 2, "float32": 4, "float": 4}
"""Types of weights, and their bytes."""

STEP_S, REQUEST_S = 3.5e-4, 2.0e-5
"""Host time of a step of text, s, in which the GPU waits, also where the next step is planned while this one runs; and
for each of its requests, where it is not: scheduling, input preparation, sampled tokens. [calibrated] to all public
runs of text together (`python -m tools.fit_host`, docs/fidelity.md)."""

SERVED = 2
"""Bytes of a number if vLLM chooses its type (`--dtype auto`): weights in float32 are served in 16 bits, too."""

DEFAULTS: dict[str, dict[str, Any]] = {
    "llama": {
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "intermediate_size": 11008,
        "vocab_size": 32000,
    },
    "mistral": {
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "vocab_size": 32000,
    },
    "gemma3_text": {
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "vocab_size": 262208,
        "tie_word_embeddings": True,
    },
}
"""Values of transformers for fields that the configuration of an inner decoder leaves out, as those of LLaVA and Gemma
3 do. [measured] of transformers 5; checked by tests/engines/test_config_files.py."""

SAME_LENGTH = ("default", "su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling")
"""Kinds of RoPE that leave `max_position_embeddings` unchanged; others multiply it (vLLM's rule)."""

USUALLY_KEPT = re.compile(r"lm_head|gate$|router|e_score|embed|visual|vision|norm")
"""Parts that are usually not quantised, and so not in our files either, or weigh nothing."""

PUBLISHED = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


@dataclass(frozen=True)
class Published:
    """A model as its config.json describes it. `kind`: its model type; `max_model_len`: tokens of one request at most,
    0 if it is not stated; `dtype`, `weights`: the stated types of its numbers; `unknown`: sentences on facts that the
    file lacks, or that our models cannot express."""

    name: str
    kind: str
    decoder: Decoder
    max_model_len: int
    dtype: str
    weights: str | None
    unknown: tuple[str, ...]

    @property
    def file_name(self) -> str:
        """The name of our file."""
        return file_name(self.name)


def file_name(model: str) -> str:
    """Return the name of our file of a published model: the model's name in small letters."""
    return re.sub(r"[^a-z0-9]+", "_", model.rpartition("/")[2].lower()).strip("_") + ".yaml"


def read_config(path: str | Path, name: str | None = None) -> Published:
    """Read the model of a config.json, or of a folder with one. `name`: as it is published; default: by the path.

    UserError for a file that cannot be read, that lacks a field or has a wrong one, and for a model that ours cannot
    express.
    """
    path = Path(path)
    if os.path.isdir(path):
        path /= CONFIG
    config = _load(path)
    text = text_config(config)
    kind = str(text.get("model_type") or config.get("model_type") or "unknown type")
    assumed = DEFAULTS.get(kind, {}) if text is not config else {}
    left_out = {field: value for field, value in assumed.items() if text.get(field) is None}
    text = {**text, **left_out}
    quantisation = _quantisation(path, config, text)
    weights = _weights(quantisation, str(path))
    decoder = replace(decoder_of(text, SERVED, str(path)), host_s=STEP_S, host_s_per_request=REQUEST_S)
    if weights is not None:
        decoder = replace(decoder, weight_dtype_bytes=1)
    dtype = _dtype(config, text, str(path))
    return Published(
        name=_named(path, name),
        kind=kind if re.fullmatch(r"[\w. -]+", kind) else "unknown type",
        decoder=decoder,
        max_model_len=_length(text, str(path)),
        dtype=dtype,
        weights=weights,
        unknown=tuple(_unknown(config, text, decoder, left_out, quantisation, dtype, str(path))),
    )


def as_yaml(model: Published) -> str:
    tag = f"[config] {model.kind}"
    lines = [
        f"# {model.name}, text in and text out: a pipeline of one stage. Made by `rehearse model` of its config.json.",
        *([f"published: [{model.name}]"] if "/" in model.name else []),
        *(
            [f"max_model_len: {_fact(model.max_model_len, f'{tag}, max_position_embeddings')}"]
            if model.max_model_len
            else []
        ),
        "audio: null",
        "stages:",
        "  thinker:",
    ]
    sources = {
        "dtype_bytes": f"{tag}, {model.dtype}",
        "weight_dtype_bytes": f"{tag}, {model.weights}",
        "host_s": "[calibrated] as llama_3_1_8b",
        "host_s_per_request": "[calibrated] as llama_3_1_8b",
    }
    for field in fields(Decoder):
        value = getattr(model.decoder, field.name)
        if isinstance(value, LatentAttention):
            lines.append(f"    {field.name}:")
            lines += [f"      {part}: {_fact(size, tag)}" for part, size in vars(value).items()]
        elif isinstance(value, int | float) and field.name != "steps" and value:
            lines.append(f"    {field.name}: {_fact(value, sources.get(field.name, tag))}")
    for nothing in ("talker_prompt_extra_tokens", "hidden_state_bytes_per_token"):
        lines.append(f"{nothing}: {_fact(0, '[chosen] no talker')}")
    return "\n".join(lines) + "\n"


def _fact(value: float, source: str) -> str:
    written = f"{value:f}".rstrip("0") if isinstance(value, float) and value else json.dumps(value)
    return f"{{value: {written}, source: {json.dumps(source)}}}"


def _load(path: Path) -> Config:
    existing_file(path)
    try:
        config = json.loads(path.read_text())
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}; give a readable file.") from None
    except (ValueError, RecursionError) as error:
        why = error if isinstance(error, json.JSONDecodeError) else "not text, or too deep"
        raise UserError(f"{path} is no JSON ({why}); give the config.json that the model was published with.") from None
    if not isinstance(config, dict):
        raise UserError(f"{path} holds no object; give the config.json that the model was published with.")
    return config


def _named(path: Path, name: str | None) -> str:
    """Return the model's name: `name` as given, else the folder's or the file's name. The cache of a hub calls a folder
    `models--OWNER--NAME`. UserError for a given name of another form."""
    if name is not None:
        if not PUBLISHED.fullmatch(name):
            raise UserError(f"--name {name!r} is no name; write it as published, such as Qwen/Qwen3-8B.")
        return name
    whole_path = path.absolute()
    cached = [part for part in whole_path.parts if part.startswith("models--")]
    called = cached[-1].removeprefix("models--") if cached else whole_path.parent.name
    if path.name != CONFIG:
        called = path.stem.removesuffix("_config")
    called = called.replace("--", "/", 1)
    return called if PUBLISHED.fullmatch(called) else "model"


def _dtype(config: Config, text: Config, where: str) -> str:
    """Return the dtype of the weights, in words. UserError for a dtype that vLLM does not serve."""
    dtype = next((str(each[key]) for each in (config, text) for key in ("dtype", "torch_dtype") if each.get(key)), None)
    if dtype is None:
        return "no dtype, served in 16 bits"
    dtype = dtype.removeprefix("torch.")
    if dtype not in TYPES:
        raise UserError(
            f"{where} has {dtype!r} as dtype, and a model's file knows {', '.join(TYPES)}; take another model."
        )
    return dtype if TYPES[dtype] == SERVED else f"{dtype}, served in 16 bits"


def _quantisation(path: Path, config: Config, text: Config) -> Config:
    """Return the configuration of quantised weights; empty without one. UserError for one that is no object."""
    for section in (config, text):
        for key in ("quantization_config", "compression_config"):
            value = section.get(key)
            if value is not None and not isinstance(value, dict):
                raise UserError(
                    f"{path} has {value!r:.40} as {key}, which should be an object; use the file it was published with."
                )
            if value:
                return value
    quantisation_file = path.with_name(path.name.removesuffix(CONFIG) + QUANTISED)
    return _load(quantisation_file) if quantisation_file.is_file() and path.name.endswith(CONFIG) else {}


def _weights(quantisation: Config, where: str) -> str | None:
    """Return the quantisation of the layers' weights, in words; None if there is none. UserError for any other than
    FP8."""
    if not quantisation:
        return None
    method = method_of(quantisation) or "unknown"
    if is_fp8(quantisation):
        return method if "fp8" in method.lower() else f"FP8 by {method}"
    inside = quantisation.get("quantization")
    algorithm = {**quantisation, **(inside if isinstance(inside, dict) else {})}.get("quant_algo")
    named = " ".join(str(word) for word in (method, algorithm or quantisation.get("format")) if word)
    raise UserError(
        f"{where} has weights quantised by {named} (quantization_config), and a model's file says 16 bits or FP8; take "
        "that out to model it unquantised, or take another model."
    )


def _length(text: Config, where: str) -> int:
    length = integer(text, "max_position_embeddings", where, default=0, least=0)
    rope = text.get("rope_scaling") or text.get("rope_parameters")
    if not isinstance(rope, dict) or "gemma3" in str(text.get("model_type")):
        return length
    kind, factor = rope.get("rope_type") or rope.get("type"), rope.get("factor")
    if kind is None or kind in SAME_LENGTH or not isinstance(factor, int | float) or factor <= 0:
        return length
    return int(length * factor)


def _unknown(
    config: Config, text: Config, decoder: Decoder, left_out: Config, quantisation: Config, dtype: str, where: str
) -> Iterator[str]:
    """Yield the facts that the file does not state, and the facts that our models cannot express."""
    yield ("host time: host_s and host_s_per_request are those of llama_3_1_8b; a profile of your own replaces them")
    if left_out:
        named = ", ".join(f"{name} {value}" for name, value in left_out.items())
        yield f"left out of the file, and taken as transformers has them: {named}"
    if "served" in dtype:
        yield f"type of numbers: {dtype} (vLLM's --dtype auto); set dtype_bytes to 4 where float32 is asked for"
    kept = listed(quantisation, "ignore", where) or listed(quantisation, "modules_to_not_convert", where)
    other = [str(name) for name in kept if not USUALLY_KEPT.search(str(name))]
    if other:
        yield f"unquantised parts: {len(other)} modules ({other[0]}, ...) count as FP8, as all layers do"
    nested = quantisation.get("quantization")
    settings = {**(nested if isinstance(nested, dict) else {}), **quantisation}
    if settings.get("kv_cache_quant_algo") or settings.get("kv_cache_scheme"):
        yield "quantised KV: the file offers it, and KV counts 16 bits"
    window = text.get("sliding_window") or text.get("attention_chunk_size")
    if window and text.get("use_sliding_window", True):
        layers = listed(text, "layer_types", where)
        count = len(layers) - layers.count("full_attention") if layers else "some or all"
        yield (
            f"sliding window: {window} tokens in {count} of {decoder.layers} layers; all layers read and keep all KV, "
            "unless an engine has a window of its own (window=TOKENS)"
        )
    if text.get("index_topk") or text.get("sparse_attention_config"):
        yield "sparse attention: every token reads all of its context, and the indexer has no weights"
    tied = text.get("tie_word_embeddings", config.get("tie_word_embeddings"))
    if tied:
        size = decoder.vocab * decoder.hidden * decoder.dtype_bytes / 1e9
        yield f"tied embeddings: embedding and output head count as two, {size:.2f} GB more than there are"
    if any(integer(text, name, where, 0, 0) for name in ("num_nextn_predict_layers", "num_mtp_modules")):
        yield "layers for multi-token prediction: left out"
    thinker = config.get("thinker_config")
    outside = {**config, **(thinker if isinstance(thinker, dict) else {})}
    if outside.get("vision_config"):
        yield "images: its vision encoder is left out, so that images count as tokens of the prompt alone"
    if outside.get("audio_config"):
        yield "audio: its encoder is left out, and nothing says how many tokens a second of sound is"
    if config.get("talker_config"):
        yield "speech: its talker is left out; the file says what the thinker does"
    if not decoder.mla and config.get("architectures") is None:
        yield "architecture: the file names none, and is read as a Llama"
