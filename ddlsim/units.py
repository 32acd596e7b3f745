"""Units: YAML speaks Mbit/s and ms, everything inside speaks bytes per second and seconds."""

BITS_PER_BYTE = 8
FLOAT32_BYTES = 4


def mbps_to_bytes_per_s(mbps: float) -> float:
    """Mbit/s (10^6 bits) to bytes/s."""
    return mbps * 1e6 / BITS_PER_BYTE


def ms_to_s(ms: float) -> float:
    """Milliseconds to seconds."""
    return ms / 1e3
