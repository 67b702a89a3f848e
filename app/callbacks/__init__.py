"""Callbacks: who waits on this node, and how a device's response reaches them."""
