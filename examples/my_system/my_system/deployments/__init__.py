"""Which of our models on which GPUs, a YAML file each."""
