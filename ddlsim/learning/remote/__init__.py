"""Parameters and training in other processes: the simulation has handles, and workers have the rows of their nodes."""
