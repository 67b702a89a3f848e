"""The parts of a node: one that ends though it must run ends the node, and says why."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from app.core.errors import ConfigurationError
from app.runtime.services import Service, Services
from tests.waiting import eventually


@pytest.mark.parametrize(("error", "is_told_whole"), [(ConfigurationError("a sentence"), False), (ValueError(7), True)])
async def test_an_error_that_is_a_sentence_needs_no_traceback(error: Exception, *, is_told_whole: bool) -> None:
    async def fail() -> None:
        raise error

    failures: list[BaseException] = []
    services = Services([Service("part", run=fail)], failures.append)
    with capture_logs() as logs:
        services.start()
        await eventually(lambda: bool(failures))
    assert failures == [error]
    (said,) = logs
    assert (said["event"], said["part"], said["reason"]) == ("node_failed", "part", str(error))
    assert said["exc_info"] is (error if is_told_whole else None)
    await services.end()
