"""Places on the Earth, and the distances between them, by which interlocks judge."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

from app.core.payload import JsonValue

RADIUS: Final = 6_371_008.8
"""The mean radius of the Earth in metres (IUGG, as in Moritz, Geodetic Reference System 1980)."""
NAMES: Final = (("latitude", "longitude"), ("lat", "lon"), ("lat", "lng"))
"""The pairs of members that are read as a place: those of DJI, of GPSD and OpenStreetMap, and of maps in browsers."""


class GeoPoint(NamedTuple):
    """A place in degrees: `latitude` from -90 to 90, `longitude` from -180 to 180."""

    latitude: float
    longitude: float

    def metres_to(self, other: GeoPoint) -> float:
        """Return the distance along a sphere (haversine), which is at most 0.6 % from that along the ellipsoid."""
        north, south = math.radians(self.latitude), math.radians(other.latitude)
        of_latitude = math.sin((south - north) / 2) ** 2
        of_longitude = math.sin(math.radians(other.longitude - self.longitude) / 2) ** 2
        chord = of_latitude + math.cos(north) * math.cos(south) * of_longitude
        return 2 * RADIUS * math.asin(min(1.0, math.sqrt(chord)))


class GeoCircle(NamedTuple):
    """The places at most so many `metres` from `centre`, or from the place that stands at the path `of`."""

    metres: float
    centre: GeoPoint | None = None
    of: tuple[str, ...] = ()

    def wanted(self) -> dict[str, JsonValue]:
        """The circle as it stands in a profile."""
        around: dict[str, JsonValue] = {"of": ".".join(self.of)}
        if self.centre is not None:
            around = {"latitude": self.centre.latitude, "longitude": self.centre.longitude}
        return {**around, "metres": self.metres}


def point_of(value: JsonValue) -> GeoPoint | None:
    """The place that an object tells; None where it tells none.

    0, 0 is none either: it lies in the sea, and is what receivers say that have no fix.
    """
    if not isinstance(value, Mapping):
        return None
    for names in NAMES:
        latitude, longitude = (_degrees(value.get(name), most) for name, most in zip(names, (90, 180), strict=True))
        if latitude is not None and longitude is not None and (latitude or longitude):
            return GeoPoint(latitude, longitude)
    return None


def _degrees(value: JsonValue, most: int) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if -most <= value <= most else None
