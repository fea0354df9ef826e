"""Facts about the models, with their sources, a YAML file each."""
