"""Other simulators on the same requests as ours, side by side on this machine."""
