"""Everything that shows Headwater keeps its promises; CONTRIBUTING.md says which folder holds what."""
