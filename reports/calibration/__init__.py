"""Predictions compared with real runs, and the measured kernels behind them."""
