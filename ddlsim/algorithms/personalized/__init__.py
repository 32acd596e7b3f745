"""Decentralized algorithms that learn a model per cluster or node, one file per paper."""
