"""The committer and the tail over a store that the test holds in its hand."""
