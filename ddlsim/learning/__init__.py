"""Real computation: flat parameters, jobs that run in waves, local training, evaluation; no simulated time."""
