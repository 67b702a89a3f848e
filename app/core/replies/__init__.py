"""Replies of Homing to devices that ask."""
