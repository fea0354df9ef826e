"""LiveServe: every figure of its evaluation."""
