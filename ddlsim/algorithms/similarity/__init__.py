"""Similarity of models, and the selection of peers by it."""
