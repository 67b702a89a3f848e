"""Fixtures of the tests in containers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.containers.engine import Services, require_images


@pytest.fixture(scope="session")
def services() -> Iterator[Services]:
    """A Redis and a Mosquitto on a Docker network."""
    require_images()
    with Services().running() as running:
        yield running
