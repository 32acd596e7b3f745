"""Executors of a run: this process (local), or actors of a Ray cluster on this and other machines."""
