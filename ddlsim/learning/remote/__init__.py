"""Parameters and training in other processes: the simulation holds handles, and workers hold the rows of their
nodes.
"""
