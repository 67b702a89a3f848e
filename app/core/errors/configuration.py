"""Errors about what a node is started with.

ConfigurationError         a setting or a profile file is wrong; the process must not start
└── ForeignDirectoryError  the other nodes have another access directory
"""

from __future__ import annotations

from app.core.errors.base import HomingError


class ConfigurationError(HomingError):
    """A setting or a profile file is wrong: says which, and what is allowed."""


class ForeignDirectoryError(ConfigurationError):
    """The other nodes of the cluster have another access directory: a key revoked there would go on counting here."""
