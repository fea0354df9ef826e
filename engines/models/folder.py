"""Folders from which vLLM reads a model that we describe: named by their content and kept in the user's cache."""

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engines.models import Decoder


def model_folder(files: Mapping[str, Any]) -> str:
    """Return the folder that holds `files` (name -> JSON content), written if it is missing; all workers share it."""
    texts = {name: json.dumps(content, indent=1) for name, content in files.items()}
    digest = hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:16]
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = caches / "rehearsal" / "models" / digest
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        if not (folder / name).exists():
            with tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as file:
                file.write(text)
            os.replace(file.name, folder / name)
    return str(folder)


END = "<|endoftext|>"


def decoder_config(decoder: Decoder, max_model_len: int) -> dict[str, Any]:
    """Return the fields that each decoder has in a config.json."""
    return {
        "hidden_size": decoder.hidden,
        "num_hidden_layers": decoder.layers,
        "num_attention_heads": decoder.heads,
        "num_key_value_heads": decoder.kv_heads,
        "head_dim": decoder.head_dim,
        "vocab_size": decoder.vocab,
        "max_position_embeddings": max_model_len,
    }


def least_vocab(named: Mapping[str, str]) -> int:
    """Return the smallest vocabulary: the bytes, the special tokens `named` and the end."""
    return 256 + len(named) + 1


def special_tokens(named: Mapping[str, str], vocab: int) -> dict[str, int]:
    """Return the last ids of the vocabulary: the end, then the tokens `named`."""
    return {token: vocab - 1 - i for i, token in enumerate((END, *named.values()))}


def tokenizer_files(named: Mapping[str, str], vocab: int) -> dict[str, Any]:
    """Return the tokenizer files of a model's folder. `named`: special tokens by the names under which its processor
    looks for them."""
    return {
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": END,
            "pad_token": END,
            "extra_special_tokens": dict(named),
            "clean_up_tokenization_spaces": False,
        },
        "tokenizer.json": byte_tokenizer(special_tokens(named, vocab)),
    }


def byte_tokenizer(special: dict[str, int], vocab: int = 0) -> dict[str, Any]:
    """Return a tokenizer with one token for each byte and each special token. Other ids below `vocab` get filler tokens
    that occur in no text."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = {letter: i for i, letter in enumerate(alphabet)} | special
    tokens |= {f"<{i}>": i for i in set(range(vocab)).difference(tokens.values())}
    tokenizer = Tokenizer(models.BPE(vocab=tokens, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    tokenizer.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in special])
    return json.loads(tokenizer.to_str())
