"""`python -m rehearsal.harness.serving`: what `ServerProcess` starts."""

from rehearsal.harness.serving.process import main

main()
