"""GPUs, a YAML file each."""
