"""Pages from the templates of the folders of `reports`."""

import colorsys
import re
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
    page = _glyphs_once(environment.get_template(template).render(css=css, **values))
    found = sorted(set(re.findall(r"var\(--c-([0-9a-f]{6})\)", page)))
    light, dark = (" ".join(f"--c-{each}: {scheme(each)};" for each in found) for scheme in (_light, _dark))
    schemes = (
        f":root {{ {light} }}\n@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
    )
    return page.replace("</style>", f"{schemes}</style>", 1) if found else page


def _glyphs_once(page: str) -> str:
    """Move the glyphs of all pictures to one place."""
    glyphs = dict.fromkeys(re.findall(_GLYPH, page))
    rest = re.sub(r"<defs>\s*</defs>", "", re.sub(_GLYPH, "", page))
    hidden = (
        f'<svg class="glyphs" width="0" height="0" aria-hidden="true"><defs>{"".join(glyphs)}</defs></svg>'
    )
    return rest.replace("<body>", f"<body>\n{hidden}", 1) if glyphs else page


_GLYPH = r'<path id="DejaVu[^>]*/>'
CONTRAST = 5.0
"""Least contrast of a colour in a picture with the page's cards: WCAG's 4.5 for text, and a shade below the text."""
_PALE, _CARD = 0.85, {"light": "ffffff", "dark": "1a2129"}
"""Lightness from which on a colour is a shade or a grid; the cards of report.css."""


def _light(colour: str) -> str:
    hue, lightness, saturation = _hls(colour)
    if lightness >= _PALE:
        return f"#{colour}"
    return _until(_CARD["light"], hue, lightness, saturation, -0.01)


def _dark(colour: str) -> str:
    hue, lightness, saturation = _hls(colour)
    if colour == _CARD["light"]:
        return f"#{_CARD['dark']}"
    if lightness >= _PALE:
        return _hex(hue, 0.24, saturation / 2)
    return _until(_CARD["dark"], hue, max(lightness, 1 - lightness), saturation, 0.01)


def _until(card: str, hue: float, lightness: float, saturation: float, step: float) -> str:
    """Return the first colour with enough contrast, from this lightness on in these steps."""
    while contrast(found := _hex(hue, lightness, saturation), f"#{card}") < CONTRAST:
        lightness += step
    return found


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours `#rrggbb` after WCAG 2, from 1 to 21."""
    dark, light = sorted(map(_luminance, (one, other)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _hls(colour: str) -> tuple[float, float, float]:
    return colorsys.rgb_to_hls(*(int(colour[place : place + 2], 16) / 255 for place in (0, 2, 4)))


def _hex(hue: float, lightness: float, saturation: float) -> str:
    parts = colorsys.hls_to_rgb(hue, min(max(lightness, 0.0), 1.0), saturation)
    return "#" + "".join(f"{round(255 * part):02x}" for part in parts)


def write(page: Path, template: str, /, **values: Any) -> Path:
    """Write a page from a template and return its path. OSError where it cannot be written."""
    text = render(template, **values)
    with replacing(page) as file:
        file.write(text.encode())
    return page
