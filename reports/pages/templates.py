"""Pages from the templates in this folder."""

from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup


def render(template: str, package: str = "reports.pages", /, **values: Any) -> str:
    """A page from one of the templates of a package, with the style sheet of all pages as `css`."""
    environment = jinja2.Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        loader=jinja2.PackageLoader(package, "."),
    )
    css = Markup((files("reports.pages") / "report.css").read_text())
    return environment.get_template(template).render(css=css, **values)
