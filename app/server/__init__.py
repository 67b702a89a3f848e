"""The HTTP server of a node: what stands between the network and the application."""
