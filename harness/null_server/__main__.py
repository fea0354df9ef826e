"""`python -m rehearsal.harness.null_server`: what `NullServer` starts."""

from rehearsal.harness.null_server.server import main

main()
