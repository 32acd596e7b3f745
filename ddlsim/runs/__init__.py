"""A run's life: its data, directory, start, end and summary; and many runs side by side."""
