"""`homing analyze --follow`: from options as people write them to the stream."""

from __future__ import annotations

import signal
from datetime import timedelta
from pathlib import Path
from types import FrameType

from app.cli.output import err, tell
from app.core.durations import parse_duration
from app.core.errors import ConfigurationError


def follow_log(  # noqa: PLR0913 - one per option
    log_dir: str,
    out: str,
    *,
    master: str | None = None,
    lateness: str = "2m",
    every: str = "10s",
    once: bool = False,
    webhook: str | None = None,
    alert_p99: str | None = None,
    alert_timeout_share: float | None = None,
    slo: float = 0.99,
    memory: str = "1536m",
) -> None:
    """Follow until interrupted (SIGINT, SIGTERM), or with `once` until all is done."""
    from app.analysis.session import spark_session
    from app.analysis.stream.options import Bands, FollowOptions
    from app.analysis.stream.run import follow
    from app.observability import configure_logging

    p99 = None if alert_p99 is None else duration("--alert-p99", alert_p99)
    options = FollowOptions(
        log_dir=log_dir,
        out=_local(out),
        master=master,
        lateness=duration("--lateness", lateness),
        trigger=duration("--every", every),
        once=once,
        webhook=webhook,
        bands=Bands(p99=p99, timeout_share=alert_timeout_share, objective=slo),
    )
    options.check()
    configure_logging("info", "json")
    signal.signal(signal.SIGTERM, _interrupt)
    with spark_session("homing analyze --follow", master, memory=memory) as spark:
        follow(spark, options, lambda text: tell(err, text))


def duration(option: str, text: str) -> timedelta:
    """The duration that an option says; ConfigurationError names the option and what is allowed."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise ConfigurationError(f"{option}: {error}") from None


def _local(out: str) -> Path:
    if "://" in out:
        raise ConfigurationError(f"--out {out}: with --follow it must be a folder of this machine")
    return Path(out)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
