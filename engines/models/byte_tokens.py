"""The tokenizer of models that we describe and vLLM reads texts for."""

import json
from typing import Any


def byte_tokenizer(special: dict[str, int]) -> dict[str, Any]:
    """A tokenizer of bytes: each is a token, and so is each special token."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {letter: i for i, letter in enumerate(alphabet)} | special
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    tokenizer.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in special])
    return json.loads(tokenizer.to_str())
