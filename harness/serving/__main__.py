"""`python -m harness.serving`: what `ServerProcess` starts."""

from harness.serving.process import main

main()
