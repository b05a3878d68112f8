"""Each chore by itself, and the keeper that runs them."""
