"""The tokenizer of models that we describe and for which vLLM reads texts."""

import json
from collections.abc import Mapping
from typing import Any

END = "<|endoftext|>"


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
