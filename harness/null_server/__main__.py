"""`python -m harness.null_server`: what `NullServer` starts."""

from harness.null_server.null_server import main

main()
