"""The client: the same verbs over HTTP, and what it does when the way or the server is bad."""
