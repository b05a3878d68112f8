"""One suite over every way of waking."""
