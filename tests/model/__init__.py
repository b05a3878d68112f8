"""Values and rules without I/O, by example and by property."""
