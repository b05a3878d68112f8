"""The commit path and the tail: operations go in as data, changes come out in commit order."""
