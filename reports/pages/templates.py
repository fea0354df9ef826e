"""Pages from the templates of the folders of `reports`."""

import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from reports.pages.contrast import for_dark, for_light
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
    page = _glyphs_once(environment.get_template(template).render(css=css, **values))
    colours = sorted(set(re.findall(r"var\(--c-([0-9a-f]{6})\)", page)))
    light, dark = (" ".join(f"--c-{each}: {scheme(each)};" for each in colours) for scheme in (for_light, for_dark))
    schemes = f":root {{ {light} }}\n@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
    return page.replace("</style>", f"{schemes}</style>", 1) if colours else page


def _glyphs_once(page: str) -> str:
    """Move the glyphs of all pictures to one place."""
    glyphs = dict.fromkeys(re.findall(_GLYPH, page))
    rest = re.sub(r"<defs>\s*</defs>", "", re.sub(_GLYPH, "", page))
    hidden = f'<svg class="glyphs" width="0" height="0" aria-hidden="true"><defs>{"".join(glyphs)}</defs></svg>'
    return rest.replace("<body>", f"<body>\n{hidden}", 1) if glyphs else page


_GLYPH = r'<path id="DejaVu[^>]*/>'


def write(page: Path, template: str, /, **values: Any) -> Path:
    """Write a page from a template and return its path. OSError where it cannot be written."""
    text = render(template, **values)
    with replacing(page) as file:
        file.write(text.encode())
    return page
