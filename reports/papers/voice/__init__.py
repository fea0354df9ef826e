"""Voice servers as they were measured in public, against what is predicted of them."""

AGAINST = "public runs"
