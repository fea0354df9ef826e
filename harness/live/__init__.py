"""Runs against real servers: real sockets, real speech, on the wall clock.

`run` plays a plan with one or more load generators, `locust` from many hosts. `live_experiment` makes an ordinary
experiment of `rehearse live URL`, `expand` its points, and `verdict` judges their results. `endpoints` has the target
and the clients that speak to it, in one of `dialects` over one of two `transport`s; `kinds` what users ask of them.
Nothing here imports `engines`.
"""
