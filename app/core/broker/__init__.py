"""The decisions of a broker: no socket, no clock, no wait."""
