"""The simulated users: one coroutine per session, the same in virtual time and against a live server."""
