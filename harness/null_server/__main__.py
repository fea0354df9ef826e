"""`python -m harness.null_server`: what `NullServer` starts."""

from harness.null_server.server import main

main()
