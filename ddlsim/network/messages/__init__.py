"""Messages: contents, bytes, and processing before sending (compression, privacy, secure aggregation)."""
