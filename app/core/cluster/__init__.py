"""What nodes of one cluster share, and how they speak to each other."""
