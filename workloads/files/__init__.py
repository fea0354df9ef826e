"""Files of public data sets, read as checked columns, and their download."""
