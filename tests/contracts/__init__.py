"""One suite over every store: tests here know the contract and the operations, and no store by name."""
