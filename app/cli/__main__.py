"""`python -m app.cli` is `homing`."""

from app.cli import main

main()
