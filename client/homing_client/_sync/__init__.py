# Made by scripts/unasync.py from _async/__init__.py. Do not edit.
