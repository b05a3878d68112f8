"""Values and rules without I/O: what a record, a queue and a cursor are, and what may become of them."""
