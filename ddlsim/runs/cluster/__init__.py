"""Where a run is computed: in this process (local), or by actors of a Ray cluster on this and other machines."""
