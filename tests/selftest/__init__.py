"""What qualifies Rehearsal itself: how good its load generator is, and what misbehaving clients cost its server.

python -m tests.selftest.quality    # the load generator against the null server
python -m tests.selftest.churn      # our server beside `fault_clients`
"""
