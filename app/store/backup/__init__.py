"""Backups of the folder of `homing up`: taken while a node uses it or not, checked, and restored."""
