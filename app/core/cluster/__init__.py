"""The secrets that nodes of one cluster share, and the ways in which they speak to each other."""
