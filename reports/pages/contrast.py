"""Colours of pictures on light and dark pages, with enough contrast to be read."""

import colorsys

CONTRAST = 5.0
"""Least contrast of a colour in a picture with the page's cards: WCAG's 4.5 for text, and a shade below the text."""
_PALE, _CARD = 0.85, {"light": "ffffff", "dark": "1a2129"}
"""Lightness from which on a colour is a shade or a grid; the cards of report.css."""


def for_light(colour: str) -> str:
    """Return a picture's colour `rrggbb` as `#rrggbb` on a light page."""
    hue, lightness, saturation = _hls(colour)
    if lightness >= _PALE:
        return f"#{colour}"
    return _until(_CARD["light"], hue, lightness, saturation, -0.01)


def for_dark(colour: str) -> str:
    """Return a picture's colour `rrggbb` as `#rrggbb` on a dark page."""
    hue, lightness, saturation = _hls(colour)
    if colour == _CARD["light"]:
        return f"#{_CARD['dark']}"
    if lightness >= _PALE:
        return _hex(hue, 0.24, saturation / 2)
    return _until(_CARD["dark"], hue, max(lightness, 1 - lightness), saturation, 0.01)


def _until(card: str, hue: float, lightness: float, saturation: float, step: float) -> str:
    """Return the first colour with enough contrast, from this lightness on in these steps."""
    while contrast(colour := _hex(hue, lightness, saturation), f"#{card}") < CONTRAST:
        lightness += step
    return colour


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
