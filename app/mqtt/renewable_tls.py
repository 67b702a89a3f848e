"""The TLS context of a client of the broker, made anew when its files are others: certificates are renewed."""

from __future__ import annotations

import ssl

import structlog

from app.core.errors import ConfigurationError
from app.mqtt.options import MqttOptions, tls_context

_Stamp = tuple[int, int, int] | None

_log = structlog.get_logger(__name__)


class RenewableTls:
    """ConfigurationError when the files of the options cannot be used at the beginning.

    Later, files that cannot be used leave what there is, as they may be half written.
    """

    def __init__(self, options: MqttOptions) -> None:
        self._options = options
        self._loaded = self._stamps()
        self._context = tls_context(options)

    def context(self) -> ssl.SSLContext | None:
        """Return the context for the next connection; None without TLS."""
        stamps = self._stamps()
        if stamps != self._loaded:
            try:
                self._context = tls_context(self._options)
            except ConfigurationError as error:
                _log.error("mqtt_certificate_refused", reason=str(error))
            else:
                self._loaded = stamps
        return self._context

    def _stamps(self) -> tuple[_Stamp, ...]:
        """Return what is different when a file is another."""
        options = self._options
        if not options.tls:
            return ()
        found: list[_Stamp] = []
        for file in (options.ca_file, options.certificate_file, options.key_file):
            try:
                stat = None if file is None else file.stat()
            except OSError:
                stat = None
            found.append(None if stat is None else (stat.st_mtime_ns, stat.st_ino, stat.st_size))
        return tuple(found)
