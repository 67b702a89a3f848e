"""What Homing says to devices that ask."""
