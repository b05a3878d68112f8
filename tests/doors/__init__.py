"""The doors: routes without a transport, and the edge over real sockets."""
