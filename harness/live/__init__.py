"""Runs against real servers: real sockets, real speech, on the wall clock.

`target` says whom a run calls. `client` is what speaks to it, in one of `dialects` over one of two `transport`s; `run`
plays a plan with as many load generators as are asked for, `locust` from many hosts. `live_experiment` makes an
ordinary experiment of `rehearse live URL`, `capacity` searches for how many calls an endpoint holds.
"""
