"""An algorithm's view of the simulation: the node with its operations, and its five ports."""
