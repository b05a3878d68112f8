"""The samples of the documents, run as a reader would run them."""
