"""Held commands: waiting for devices that are away, and sending to those that are back."""
