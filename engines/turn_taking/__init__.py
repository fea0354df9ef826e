"""Turn taking: a server that listens all the time finds the ends of turns, and the speech that cuts its reply."""
