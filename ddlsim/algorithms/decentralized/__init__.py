"""Decentralized algorithms that learn one model for all nodes, one file per paper, and baselines."""
