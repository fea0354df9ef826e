"""Retrieval-augmented answering: a reranker scores what was retrieved, a generator answers with the best of it."""
