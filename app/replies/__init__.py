"""Replies to devices that ask, and the services of the operator that are asked for them."""
