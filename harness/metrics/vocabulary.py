"""All vocabularies: what a metric of any name means."""

import re
from collections import ChainMap

from harness.metrics.classes import CLASS_DEFINITIONS
from harness.metrics.definitions import OWN_DEFINITIONS, Definition
from harness.metrics.frames import FRAME_DEFINITIONS
from harness.metrics.jobs import JOB_DEFINITIONS
from harness.metrics.live import LIVE_DEFINITIONS
from harness.metrics.metric_name import parsed, quantile_of
from harness.metrics.quality import QUALITY_DEFINITIONS
from harness.metrics.turn_taking import TURN_TAKING_DEFINITIONS
from harness.metrics.turns import DEFINITIONS, WHOLE_RUN, stage_use_definitions
from workloads.errors import UserError, nearest

for _name, _own in (TURN_TAKING_DEFINITIONS | JOB_DEFINITIONS).items():
    if OWN_DEFINITIONS.setdefault(_name, _own) is not _own:
        raise ValueError(f"two metrics are called {_name}")

KNOWN = ChainMap(OWN_DEFINITIONS, QUALITY_DEFINITIONS, FRAME_DEFINITIONS, DEFINITIONS, LIVE_DEFINITIONS)
"""The vocabularies but that of classes. A name that several have has the meaning of the first."""

OF_CLASSES = ChainMap(CLASS_DEFINITIONS, OWN_DEFINITIONS)
"""Metrics of classes, and those of packages, which may have classes too."""


def definition(name: str) -> Definition:
    """Return the definition of a metric of any vocabulary, a class's included, also of a percentile that no run has
    unless it is asked for. KeyError for an unknown name."""
    asked = parsed(name)
    key, table = str(asked._replace(request_class="")), OF_CLASSES if asked.request_class else KNOWN
    if key in table:
        return table[key]
    for other, meaning in table.items():
        if asked.quantile and meaning.statistic and parsed(other).quantity == asked.quantity:
            return meaning.of(asked.statistic)
    return _of_other_stage(name)


def metric_named(text: str, option: str, bare: bool = False) -> str:
    """Return the metric that a user asked for; `ttfp` is short for `audio_ttfp`. `bare`: a percentile alone stays as it
    is. UserError, which says what to write instead, for an unknown name."""
    if bare and quantile_of(text):
        return text
    asked = parsed(text)
    short = asked.quantity in ("ttfp", f"ttfp{WHOLE_RUN}")
    name = str(asked._replace(quantity=f"audio_{asked.quantity}")) if short else text
    try:
        definition(name)
    except KeyError:
        raise UserError(f"{option}: {_unknown(text, bare)}") from None
    return name


def _unknown(text: str, bare: bool) -> str:
    asked, percentile = parsed(text), re.fullmatch(r"(.*_)?p(\d{0,2})([\d.]*)", text)
    if percentile and not asked.quantile:
        family, whole, rest = percentile.groups("" if bare else "ttfp_")
        fix = next(p for p in (f"p{whole}.{rest}", f"p{whole}{rest}", "p99") if quantile_of(p))
        return f"{text!r} is no metric with a percentile above 0 and below 100; write for example {family}{fix}."
    definitions = CLASS_DEFINITIONS if asked.request_class else KNOWN
    names = [str(parsed(each)._replace(request_class=asked.request_class)) for each in definitions]
    names = [each.removeprefix("audio_") if each.startswith("audio_ttfp") else each for each in names]
    near = ", ".join(each for each in names if parsed(each).quantity == asked.quantity)
    return f"unknown metric {text!r}." + (f" There are {near}." if near else nearest(text, names))


def _of_other_stage(name: str) -> Definition:
    """Return the definition of a metric of a stage that no spoken reply has, such as `busy_vision`; KeyError."""
    match = re.fullmatch(r"busy_(\w+)|decode_batch_(\w+)_(?:mean|peak)", name)
    if match is None:
        raise KeyError(name)
    return stage_use_definitions(match[1] or match[2])[name]
