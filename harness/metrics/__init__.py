"""The experience of users, as pure functions over the event log: no vLLM, no clock, no state."""
