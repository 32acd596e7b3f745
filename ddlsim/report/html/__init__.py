"""A report as one HTML file: sections printed by page.py, figures drawn by the scripts in assets/."""
