"""Algorithms with a server: nodes train, the server merges, one file per paper."""
