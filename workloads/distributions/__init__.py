"""Distributions of arrivals, lengths and speech rates, fitted to published statistics."""
