"""Models by the names under which they are published, as logs and results of servers have them."""

from functools import cache

from engines.models import Model, load_model, yaml_files
from workloads.files.yaml_file import shipped_yaml


def model_of(published_name: str) -> Model | None:
    """The facts of a model that is published under this name (case does not matter); None where they are not here."""
    name = _names().get(published_name.lower())
    return load_model(name) if name is not None else None


@cache
def _names() -> dict[str, str]:
    """Published names in small letters, and the names of our files."""
    return {
        published.lower(): name
        for name, path in yaml_files("models").items()
        for published in shipped_yaml(path).get("published", [])
    }
