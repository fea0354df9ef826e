"""Predictions held against real runs, and the measured kernels that they stand on."""
