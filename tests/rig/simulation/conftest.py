"""The rig's verbs are tried like all others."""

from tests.unit.cli.conftest import homing

__all__ = ["homing"]
