"""The device profiles that come with Homing."""
