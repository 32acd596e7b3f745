"""What an algorithm sees of the simulation: the node with its operations, and the five ports behind it."""
