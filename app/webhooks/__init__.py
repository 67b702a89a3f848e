"""Tells endpoints what became of commands: collects, sends, tries again. Built on ports."""
