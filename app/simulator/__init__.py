"""A simulated fleet: MQTT clients that answer commands as devices of a family do, faults included.

For the command line:

    parse_range("50ms..2s") -> Range            ValueError says what is allowed
    parse_share("1%") -> float                  0.0 to 1.0; likewise
    FleetOptions(profile="dji", devices=50, delay=…, drop=…, duplicate=…, late=…, garbage=…, refuse=…, seed=…)
                                                ConfigurationError says which option and what is allowed
    FLEET_PROFILES                              the profiles that can be simulated
    await run_simulation(options, mqtt_url, *, version="5", stats=None, ready=None)
                                                runs until it is cancelled; `stats` (FleetStats) counts live and
                                                `ready` (asyncio.Event) is set when all devices are subscribed
"""

from app.simulator.fleet import Fleet, FleetStats
from app.simulator.options import FLEET_PROFILES, FleetOptions, Range, parse_range, parse_share
from app.simulator.run import run_simulation

__all__ = [
    "FLEET_PROFILES",
    "Fleet",
    "FleetOptions",
    "FleetStats",
    "Range",
    "parse_range",
    "parse_share",
    "run_simulation",
]
