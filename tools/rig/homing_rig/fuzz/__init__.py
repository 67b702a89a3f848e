"""Mutated packets of MQTT for the broker in a node: by the structure of packets, and from a seed."""
