"""Everything that a scenario runs on: services, nodes, devices, callers, faults, and the record of it all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any, Final

import aiohttp
from redis.asyncio import Redis, RedisCluster

from app.runtime.system import SystemClock
from homing_rig.chaos.balancers import Choose, RoundRobin
from homing_rig.chaos.fleet import Fleet, Plan, Witness, between
from homing_rig.chaos.history import BROKER_DROPPED, FaultPhase
from homing_rig.chaos.load import Finals, Job, Load
from homing_rig.chaos.nemesis import Nemesis
from homing_rig.chaos.options import SHARE_GROUP, ChaosError, ChaosOptions
from homing_rig.chaos.ordered import PROFILE
from homing_rig.chaos.proxy_process import ProxyProcess, RemoteProxy
from homing_rig.chaos.recorder import Recorder
from homing_rig.chaos.redis_cluster import RedisThirds, thirds_of
from homing_rig.chaos.redis_pair import RedisPair
from homing_rig.chaos.scenario import Form, Scenario
from homing_rig.chaos.schedule import Fault, Kind
from homing_rig.chaos.servers import MosquittoProcess, NodeProcess, RedisProcess, UpProcess
from homing_rig.guard import Guard
from homing_rig.rights import NODE_USER, PASSWORD, RIG_USER
from homing_simulator.options import device_ids

GRACE: Final = 2.0
"""Seconds after its deadline within which every command must have its outcome."""
SHORT_GRACE: Final = 30.0
"""The same in short forms: they judge whether it comes, not how soon."""
ANSWERS_SECONDS: Final = 90.0
_NOTHING: Final = (404, 409)
_INVALID: Final = 422
_AGAIN_SECONDS: Final = 0.2
_ASK_SECONDS: Final = 300.0
"""The time in which some node has to answer: more than any fault lasts."""
READ_TWICE: Final = 1000
"""The number of commands that are read from a second node as well."""
_MOMENTS: Final = frozenset({Kind.CUT_PUBSUB, Kind.FLUSH, Kind.FORGET_SCRIPTS, Kind.CLOCK_FORWARD, Kind.CLOCK_BACK})


@dataclass(slots=True)
class Rig:
    """The means of a scenario. Everything runs when it gets them, but for the fleet, whose plan it chooses."""

    scenario: Scenario
    form: Form
    options: ChaosOptions
    schedule: list[Fault]
    recorder: Recorder
    redis_service: RedisProcess
    broker: MosquittoProcess
    nodes: dict[str, NodeProcess]
    redis: Redis | RedisCluster
    session: aiohttp.ClientSession
    nemesis: Nemesis
    mqtt_port: int
    """The port of the broker that devices use: that of `broker`, or of the node itself."""
    turns: Choose
    """Every node in turn, whether it lives or not."""
    load: Load
    finals: Finals
    witness: Witness
    stack: AsyncExitStack
    phase: str = "starting"
    fleets: list[Fleet] = field(default_factory=list)
    measures: dict[str, float] = field(default_factory=dict)
    """The measurements of the scenario, by the names of its figures."""

    @property
    def alive(self) -> int:
        """Nodes that run and are not frozen."""
        return sum(node.running and not node.frozen for node in self.nodes.values())

    @property
    def places(self) -> list[tuple[str, str]]:
        """Every node with its URL."""
        return [(node.name, node.url) for node in self.nodes.values()]

    @property
    def devices(self) -> list[str]:
        """The ids of the fleet's devices."""
        return device_ids("SN000001", self.form.devices)

    async def start_fleet(self, plan: Plan | None = None, *, profile: str = "homing") -> Fleet:
        """Connect the devices; without a plan they answer after the delay of the form."""
        self.phase = "connecting devices"
        fleet = Fleet(
            port=self.mqtt_port,
            devices=self.devices,
            plan=plan or between(*self.form.delay),
            recorder=self.recorder,
            clock=SystemClock(),
            seed=self.options.seed,
            sessions=self.form.sessions,
            profile=profile,
        )
        self.stack.push_async_callback(fleet.stop)
        await fleet.start()
        self.fleets.append(fleet)
        return fleet

    def job(self, **changes: Any) -> Job:
        """The load that the form asks for, with these changes."""
        form = self.form
        job = Job(
            rate=form.rate,
            in_flight=form.in_flight,
            seconds=None if form.commands is not None else form.seconds,
            commands=form.commands,
            share_async=form.share_async,
            timeout=form.timeout,
            attempt_seconds=form.attempt,
            patience=form.patience,
            devices=self.devices,
        )
        return replace(job, **changes)

    async def load_with_faults(self, job: Job) -> None:
        """Load while the schedule runs; afterwards every fault is over."""
        self.phase = "load and faults" if self.schedule else "load"
        faults = asyncio.create_task(self.nemesis.run(self.schedule))
        await self.load.run(job)
        self.phase = "healing"
        await faults
        await self.nemesis.heal()

    async def settle(self) -> None:
        """Wait for the answers that are on their way, then read what became of every command."""
        self.phase = "waiting for answers"
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWERS_SECONDS):
                while any(fleet.open_answers for fleet in self.fleets):
                    await asyncio.sleep(0.05)
        self.phase = "reading outcomes"
        known = {call.command_id for call in self.load.calls if call.command_id is not None}
        executed = {command_id for fleet in self.fleets for command_id in fleet.executions}
        open_until = max((call.ended + call.timeout for call in self.load.calls), default=0.0)
        until = max(open_until, self.recorder.now()) + grace_of(self.options) + 1
        chosen = sorted(known | executed)
        await self.finals.read_all(chosen, until=until)
        await self.finals.read_all(chosen[:READ_TWICE], until=until)

    async def ask(self, verb: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Ask any node that answers; what it says, and nothing where it refuses as things stand or knows of nothing.

        What is posted may be repeated, under one key. ChaosError where it is no request, or no node ever answers.
        """
        until = asyncio.get_running_loop().time() + _ASK_SECONDS
        while asyncio.get_running_loop().time() < until:
            _, url = self.turns()
            with suppress(aiohttp.ClientError, OSError, TimeoutError):
                async with asyncio.timeout(self.form.attempt):
                    headers = {} if body is None else {"Idempotency-Key": path.strip("/").replace("/", "-")}
                    request = self.session.request(verb, f"{url}{path}", json=body, headers=headers)
                    async with request as response:
                        if response.status in _NOTHING:
                            return {}
                        if response.status == _INVALID:
                            raise ChaosError(f"{verb} {path}: {await response.text()}")
                        if response.ok:
                            said: dict[str, Any] = await response.json()
                            return said
            await asyncio.sleep(_AGAIN_SECONDS)
        raise ChaosError(f"{verb} {path}: no node has answered it for {_ASK_SECONDS:g} s")

    async def counters(self, name: str) -> dict[str, Mapping[str, Any]]:
        """Return what a node says of itself under /v1/nodes."""
        async with self.session.get(f"{self.nodes[name].url}/v1/nodes") as response:
            response.raise_for_status()
            said: dict[str, Any] = await response.json()
            return said

    async def note_counters(self) -> None:
        """Put the counters of all nodes, and of the broker, into the history.

        Measure what Redis refused to nodes, which mistakes they survived, and which faults did not happen.
        """
        for name, node in self.nodes.items():
            if not node.running:
                continue
            with suppress(aiohttp.ClientError, OSError, TimeoutError):
                said = await self.counters(name)
                for counter, value in said["self"]["counters"].items():
                    self.recorder.metric(name, counter, float(value))
        thirds = self.nemesis.thirds
        refusals = len(await self.redis.acl_log()) if thirds is None else await thirds.refusals()
        self.measures["refused_rights"] = refusals
        self.measures["tracebacks"] = sum(node.tracebacks for node in self.nodes.values())
        self.measures["kinds_in_vain"] = len(self.nemesis.kinds_in_vain(self.schedule))
        self.recorder.metric("broker", BROKER_DROPPED, self.witness.dropped)


def grace_of(options: ChaosOptions) -> float:
    """Seconds after its deadline within which a command must have its outcome in such a run."""
    return SHORT_GRACE if options.short else GRACE


@asynccontextmanager
async def rig_of(
    scenario: Scenario, form: Form, options: ChaosOptions, schedule: list[Fault], recorder: Recorder, folder: Path
) -> AsyncIterator[Rig]:
    """Start everything, and stop it at the end."""
    async with AsyncExitStack() as stack:
        profiles = _profiles(folder, scenario)
        thirds = await thirds_of(stack, folder) if scenario.cluster else None
        redis_service, broker = await _services(stack, scenario, folder, profiles, thirds)
        up = await _up(stack, form, options, folder, profiles) if options.up else None
        mqtt_port = broker.port if up is None else up.mqtt_port
        witness = Witness(mqtt_port)  # before nodes, as they may take long: the broker forgets counts after a minute
        stack.push_async_callback(witness.stop)
        await witness.start()
        proxies: dict[str, RemoteProxy] = {}
        ways = await stack.enter_async_context(ProxyProcess(folder / "proxies.log"))
        pair = await _pair(stack, redis_service, folder, ways, proxies) if scenario.replica else None
        redis = _client(redis_service if pair is None else proxies["rig"], thirds)
        stack.push_async_callback(redis.aclose)
        guard = await _guard(options, folder)
        nodes: dict[str, NodeProcess] = {} if up is None else {"n1": up}
        for number in range(1, form.nodes + 1) if up is None else ():
            name, port = f"n{number}", redis_service.port
            if scenario.proxies or pair is not None:
                proxies[name] = await ways.open(port, seed=options.seed)
                port = proxies[name].port
            asks = {} if guard is None else guard.settings
            url = f"redis://{NODE_USER}:{PASSWORD}@127.0.0.1:{port}/0" if thirds is None else thirds.url
            settings = _settings(form, options, url, broker, profiles) | asks
            command = _command(scenario, options, number)
            nodes[name] = NodeProcess(name, folder, command, settings, forked=options.forked)
            stack.push_async_callback(nodes[name].kill)
        await asyncio.gather(*(node.start() for node in nodes.values()))
        session = await stack.enter_async_context(_session(guard))
        flushing = asyncio.create_task(recorder.keep_flushing())
        stack.callback(flushing.cancel)
        nemesis = Nemesis(nodes, broker, redis_service, redis, proxies, _noting(recorder), pair, thirds)
        turns = RoundRobin([(node.name, node.url) for node in nodes.values()])
        rig = Rig(
            scenario=scenario,
            form=form,
            options=options,
            schedule=schedule,
            recorder=recorder,
            redis_service=redis_service,
            broker=broker,
            nodes=nodes,
            redis=redis,
            session=session,
            nemesis=nemesis,
            mqtt_port=mqtt_port,
            turns=turns,
            load=Load(recorder, session, turns, options.seed),
            finals=Finals(recorder, session, _alive(nodes)),
            witness=witness,
            stack=stack,
        )
        yield rig


async def _services(
    stack: AsyncExitStack, scenario: Scenario, folder: Path, profiles: Path, thirds: RedisThirds | None
) -> tuple[RedisProcess, MosquittoProcess]:
    """Start the Redis, or the first of many, and the broker of the scenario."""
    redis_service = RedisProcess(folder, steps=scenario.steps, fsync=scenario.fsync)
    if thirds is not None:
        redis_service = thirds.members[0]
    broker = MosquittoProcess(folder, profiles)
    for service in (redis_service, broker):
        stack.push_async_callback(service.kill)
        await service.start()
    return redis_service, broker


async def _up(stack: AsyncExitStack, form: Form, options: ChaosOptions, folder: Path, profiles: Path) -> UpProcess:
    """Start the one `homing up` that is node, broker and store."""
    up = UpProcess("n1", folder, _settings_of_up(form, options, profiles))
    stack.push_async_callback(up.kill)
    await up.start()
    return up


def _session(guard: Guard | None) -> aiohttp.ClientSession:
    """The HTTP client of all callers, to be closed."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=2.0),
        headers={} if guard is None else {"Authorization": guard.authorization},
    )


def _client(redis: RedisProcess | RemoteProxy, thirds: RedisThirds | None) -> Redis | RedisCluster:
    """The connections of the rig itself."""
    return Redis(port=redis.port, username=RIG_USER, password=PASSWORD) if thirds is None else thirds.client


def _profiles(folder: Path, scenario: Scenario) -> Path:
    """Write the profiles that nodes have beside the shipped ones."""
    profiles = folder / "profiles"
    profiles.mkdir()
    (profiles / "ordered.toml").write_text(PROFILE, "utf-8")
    if scenario.lane:
        shipped = (resources.files("app.profiles.shipped") / "homing.toml").read_text("utf-8")
        (profiles / "homing.toml").write_text(shipped + scenario.lane, "utf-8")
    return profiles


async def _pair(
    stack: AsyncExitStack, primary: RedisProcess, folder: Path, ways: ProxyProcess, proxies: dict[str, RemoteProxy]
) -> RedisPair:
    """Give this Redis a replica; the proxies, also those that come later, lead to the primary of the moment."""
    proxies["rig"] = await ways.open(primary.port)
    link = await ways.open(primary.port)
    pair = RedisPair(primary, RedisProcess(folder, name="redis-2"), link, proxies)
    stack.push_async_callback(pair.replica.kill)
    await pair.start()
    return pair


async def _guard(options: ChaosOptions, folder: Path) -> Guard | None:
    if not options.access:
        return None
    guard = Guard(folder)
    await guard.set_up()
    return guard


def _command(scenario: Scenario, options: ChaosOptions, number: int) -> list[str]:
    """The command that starts a node; with a wrong clock it goes through `tools/rig/homing_rig/chaos/skewed.py`."""
    python, dash_m, *rest = options.node_command
    skew = scenario.skews[number - 1] if number <= len(scenario.skews) else 0
    return [python, dash_m, "homing_rig.chaos.skewed", str(skew), *rest] if skew else [python, dash_m, *rest]


def _settings(
    form: Form, options: ChaosOptions, store_url: str, broker: MosquittoProcess, profiles: Path
) -> dict[str, str]:
    log = {} if options.latency_log is None else {"HOMING_LATENCY_LOG_DIR": str(options.latency_log)}
    return {
        "HOMING_STORE_URL": store_url,
        "HOMING_MQTT_URL": f"mqtt://127.0.0.1:{broker.port}",
        "HOMING_MQTT_USERNAME": NODE_USER,
        "HOMING_MQTT_PASSWORD": PASSWORD,
        "HOMING_MQTT_SHARE_GROUP": SHARE_GROUP,
        "HOMING_PROFILES_DIR": str(profiles),
        "HOMING_LOG_FORMAT": "json",
        "HOMING_LATENCY_LOG_INTERVAL": "2s",  # nodes do not live long here
        **log,
        **{name: _placed(value, profiles.parent, store_url) for name, value in form.settings.items()},
        **options.node_settings,
    }


def _settings_of_up(form: Form, options: ChaosOptions, profiles: Path) -> dict[str, str]:
    """The settings of the form but for those of a Redis, which `homing up` has none of."""
    own = {name: value for name, value in form.settings.items() if "{redis}" not in value}
    room = {"HOMING_STORE_RECORDS_BYTES": str(2**29)}  # full forms send in minutes what a box may keep in hours
    return {"HOMING_PROFILES_DIR": str(profiles), "HOMING_LOG_FORMAT": "json", **room, **own, **options.node_settings}


def _placed(value: str, folder: Path, store_url: str) -> str:
    """A setting of a scenario that names the folder of the run, or its Redis."""
    return value.replace("{folder}", str(folder)).replace("{redis}", store_url)


def _noting(recorder: Recorder) -> Callable[[str, str, str], None]:
    def note(kind: str, target: str, phase: str) -> None:
        if kind not in _MOMENTS:
            recorder.fault(kind, target, FaultPhase(phase))
        elif phase == "begin":
            recorder.fault(kind, target, FaultPhase.MOMENT)

    return note


def _alive(nodes: Mapping[str, NodeProcess]) -> Choose:
    """The nodes that run, in turn."""
    count = 0

    def choose() -> tuple[str, str]:
        nonlocal count
        count += 1
        running = [node for node in nodes.values() if node.running and not node.frozen] or [*nodes.values()]
        node = running[count % len(running)]
        return node.name, node.url

    return choose
