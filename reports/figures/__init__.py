"""The pictures of a report, one module each: records in, a matplotlib figure out, or the reason for none."""
