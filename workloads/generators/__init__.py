"""Workloads that are made: arrivals, lengths and dialogues drawn from laws."""
