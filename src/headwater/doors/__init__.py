"""Doors: how requests from outside reach the services. Routes know no transport, transports know no route."""
