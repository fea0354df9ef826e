"""Other load generators' results as records of ours, and ours in their formats."""
