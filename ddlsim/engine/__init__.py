"""Simulated time: drives the algorithms of all nodes, their messages, and nodes that leave and return."""
