"""Turn taking: how a server that listens all the time finds the ends of turns, and when speech cuts its reply."""
