"""Many runs: sweeps of one scenario under many settings, searches, and the processes in which they run."""
