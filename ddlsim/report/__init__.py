"""Reports on runs: pure functions of the records in run directories; nothing here starts a simulation."""
