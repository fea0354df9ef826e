"""What a load costs: seconds of GPUs, energy, money."""
