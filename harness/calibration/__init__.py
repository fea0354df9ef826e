"""Measuring how long steps take on a real device, and fitting the model that virtual time replays with."""
