"""The stages through which a spoken reply goes, by their names in the log."""

AR_STAGES = ("thinker", "talker")
"""Stages that produce tokens: text tokens at the thinker, codec frames at the talker."""
STAGES = (*AR_STAGES, "vocoder")
