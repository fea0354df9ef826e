"""One point in a fresh process: forked, replayed, measured."""
