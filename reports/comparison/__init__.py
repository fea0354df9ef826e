"""One run against another: compare, the gate, the night."""
