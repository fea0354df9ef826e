"""`python -m engines.stock`: the command that serves a stage with stock vLLM under one of our policies."""

import typer

from engines.stock.arguments import main

typer.run(main)
