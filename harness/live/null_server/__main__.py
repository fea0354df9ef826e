"""`python -m harness.live.null_server`: what `NullServer` starts."""

from harness.live.null_server.null_server import main

main()
