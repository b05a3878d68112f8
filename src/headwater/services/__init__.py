"""What the doors and the library offer, as operations on the log."""
