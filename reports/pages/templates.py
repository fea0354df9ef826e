"""Pages from the templates of the folders of `reports`."""

from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from workloads.atomic_file import replacing


def render(template: str, /, **values: Any) -> str:
    """A page from a template, such as pages/index.html.j2, with the style sheet of all pages as `css`."""
    environment = jinja2.Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        loader=jinja2.PackageLoader("reports", "."),
    )
    css = Markup((files("reports.pages") / "report.css").read_text())
    return environment.get_template(template).render(css=css, **values)


def write(page: Path, template: str, /, **values: Any) -> Path:
    """Write a page from a template and return its path. OSError where it cannot be written."""
    text = render(template, **values)
    with replacing(page) as file:
        file.write(text.encode())
    return page
