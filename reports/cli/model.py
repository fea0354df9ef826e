"""`rehearse model`: a model file from a model's config.json."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reports.cli.settings import option
from reports.tables.plain_tables import grid
from workloads.atomic_file import STDOUT, YAML_ENDINGS, check_output
from workloads.errors import UserError

if TYPE_CHECKING:
    from engines.models.config_file import Published


def model(
    config: Annotated[
        Path,
        typer.Argument(
            metavar="FILE_OR_FOLDER", help="config.json as published on Hugging Face, or the folder that has it."
        ),
    ],
    out: Path | None = option(None, "File to write (YAML); - prints it. Default: the model's name, in this folder."),
    name: str | None = option(None, "The name it is published under, as Qwen/Qwen3-8B; default: by the path."),
) -> None:
    """Read a model's config.json as vLLM does, and write a file of the model for `--set model=FILE`.

    `rehearse model config.json --name Qwen/Qwen3-8B`

    `rehearse run bench --set deployment=llama_8b_h100 --set model=qwen3_8b.yaml`
    """
    from engines.models.config_file import as_yaml, read_config
    from workloads.atomic_file import output

    published = read_config(config, name)
    path = Path(published.file_name) if out is None else check_output(out, YAML_ENDINGS)
    if out is None and path.exists():
        raise UserError(f"{path} is there already; name it with --out to write it anew, or name another file.")
    with output(path) as file:
        file.write(as_yaml(published).encode())
    _show(published, stderr=path == STDOUT)
    if path != STDOUT:
        typer.echo(f"\n{path}")


def _show(published: Published, stderr: bool) -> None:
    """Print the facts that were read and the missing ones."""
    from rich.console import Console
    from rich.markup import escape

    decoder, console = published.decoder, Console(stderr=stderr)
    experts = f", {decoder.experts_per_token} of {decoder.experts} experts" if decoder.experts else ""
    heads = f"{decoder.heads}, {decoder.kv_heads} of K and V, each of {decoder.head_dim}"
    if decoder.mla is not None:
        heads = f"{decoder.heads}, KV compressed to {decoder.mla.kv_rank + decoder.mla.rope}"
    embeddings = 2 * decoder.vocab * decoder.hidden
    params = (decoder.weight_bytes - embeddings * decoder.dtype_bytes) / decoder.layer_dtype_bytes + embeddings
    facts = {
        "model": f"{published.name} ({published.kind})",
        "layers": str(decoder.layers) + (f", {decoder.dense_layers} of them dense" if decoder.dense_layers else ""),
        "heads": heads,
        "parameters": f"{params / 1e9:.1f} billion{experts}",
        "weights": f"{decoder.weight_bytes / 1e9:.1f} GB, {published.weights or published.dtype}",
        "KV of a token": f"{decoder.kv_bytes_per_token:,} bytes",
        "longest request": f"{published.max_model_len:,} tokens" if published.max_model_len else "not said",
    }
    console.print(grid((), [(what, escape(value)) for what, value in facts.items()]))
    console.print("\nNot in the file, or not modelled:")
    for sentence in published.unknown:
        console.print(f"- {escape(sentence)}", soft_wrap=True)
