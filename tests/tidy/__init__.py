"""Tests of the tree itself: what may import what, where SQL stands, what a file may hold."""
