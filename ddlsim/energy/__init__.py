"""What computing and sending cost in electricity: figures of devices, links and grids, and joules from counts."""
