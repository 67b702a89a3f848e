"""Opens the latency log that the settings ask for. pyarrow is imported only where there is one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from app.core.clock import Clock
from app.core.errors import ConfigurationError
from app.latency.log import LatencyLog
from app.runtime.telemetry import Counters
from app.settings import LatencySettings


def open_log(
    settings: LatencySettings,
    *,
    node_id: str,
    incarnation: str,
    clock: Clock,
    store_now: Callable[[], Awaitable[int]],
    counters: Counters,
) -> LatencyLog | None:
    """The log, None when it is off; ConfigurationError when it cannot be as the settings say."""
    if not settings.log_dir:
        return None
    try:
        from app.latency.files import open_place  # noqa: PLC0415 - see above
        from app.latency.writer import ROW_GROUP, LogWriter  # noqa: PLC0415
    except ImportError as error:
        raise ConfigurationError(
            f"HOMING_LATENCY_LOG_DIR: the log needs {error.name}, which is not installed: pip install 'homing[latency]'"
        ) from None
    writer = LogWriter(
        open_place(settings.log_dir), node_id, incarnation, row_group=min(ROW_GROUP, settings.log_buffer // 4)
    )
    return LatencyLog(
        writer,
        clock=clock,
        store_now=store_now,
        interval=settings.log_interval,
        buffer=settings.log_buffer,
        counters=counters,
    )
