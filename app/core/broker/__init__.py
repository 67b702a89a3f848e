"""What a broker decides: no socket, no clock, no wait."""
