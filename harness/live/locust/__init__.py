"""Many hosts: one run's plan, played by the workers of Locust (`locustfile`)."""
