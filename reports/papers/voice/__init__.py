"""Public measurements of voice servers, compared with our predictions."""

AGAINST = "public runs"
