"""What is measured of a run and when: evaluations, early stopping, monitoring that steers nothing. No SimPy here."""
