"""The version of this package: that of the Homing it comes with."""

__version__ = "0.3.0"
