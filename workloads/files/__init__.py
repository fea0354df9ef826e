"""Other people's files, read as checked columns, and public data sets fetched once."""
