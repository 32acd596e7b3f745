"""What an algorithm sees of the simulation: the node with its verbs, and the five ports behind it."""
