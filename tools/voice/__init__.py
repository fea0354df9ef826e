"""The voice of simulated callers: made by `speak`, chosen by `compare` (`docs/speech.md`)."""
