"""Messages as values: what they hold, what that weighs, and how it is encoded on its way out."""
