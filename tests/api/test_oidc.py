"""Tokens of a real OIDC issuer at a whole node: who they let in, and a hundred thousand that let nobody in."""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64decode
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest
from aiohttp import web

from app.access.login.jwks import IssuerKeys
from app.access.login.tokens import Tokens
from app.core.access.callers import Caller
from app.core.access.changes import Put
from app.core.access.model import Binding, Credential, Kind, Principal, Scheme
from app.runtime.system import SystemClock
from homing_rig.issuer import Issuer, part, serving
from tests.api.rig import until
from tests.api.test_access import Site, guarded
from tests.unit.access.signing import AUDIENCE, EC, RSA, STRANGER, Key, claims, public_set, signed

GROUP = "night shift"
FORGED = 100_000
FEW = 10_000


def seconds_now() -> int:
    return int(SystemClock().wall())


@dataclass
class Place:
    """A node that believes an issuer."""

    site: Site
    issuer: Issuer

    def token(self, key: Key = EC, algorithm: str = "ES256", kid: str | None = None, **changes: object) -> str:
        """A good token with some claims changed."""
        now = seconds_now()
        found = claims(**{"iss": self.issuer.url, "iat": now - 60, "exp": now + 600, "groups": [GROUP], **changes})
        return signed(found, key, algorithm, **({} if kid is None else {"kid": kid}))

    async def me(self, token: str) -> httpx.Response:
        return await self.site.rig.http.get("/v1/me", headers={"Authorization": f"Bearer {token}"})

    async def send(self, token: str, device: str = "drone-1") -> int:
        url, headers = f"/v1/devices/{device}/commands", {"Authorization": f"Bearer {token}"}
        return (await self.site.rig.http.post(url, json={"method": "ok"}, headers=headers)).status_code

    @property
    def tokens(self) -> Tokens:
        authority: Any = self.site.rig.application.ports.access
        tokens: Tokens = authority._tokens
        return tokens

    @property
    def keys(self) -> IssuerKeys:
        tokens: Any = self.tokens
        keys: IssuerKeys = tokens._keys
        return keys


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with serving(public_set(EC)) as issuer:
        issuer.body = public_set(EC, RSA)
        settings = {"issuer": issuer.url, "audience": AUDIENCE, "tenant_claim": "org"}
        async with guarded(tmp_path, oidc=settings) as site:
            await site.change(Put(Binding(id="b", subject=f"group:{GROUP}", role="operator", tenant_id="air")))
            place = Place(site, issuer)
            await until(lambda: len(place.keys) > 0)
            yield place


async def test_a_token_may_do_what_its_groups_may_in_its_tenant(place: Place) -> None:
    token = place.token(org="air", groups=["x", GROUP])
    assert (await place.me(token)).json() == {
        "open": False,
        "principal": f"oidc:{place.issuer.url}#ada",
        "tenant": "air",
        "key": None,
        "expires_at": (await place.me(token)).json()["expires_at"],
        "session": False,
        "roles": ["operator"],
        "may": ["fleet"],
        "limits": [],
    }
    assert await place.send(token) == 200
    assert await place.send(token, "lamp-1") == 404
    assert await place.send(place.token(org="air", groups=["x"])) == 404
    assert await place.send(place.token(org="ground")) == 404
    assert (await place.me(place.token())).status_code == 401  # it names no tenant


async def test_who_is_on_record_has_their_own_tenant_and_rights(place: Place) -> None:
    await on_record(place)
    token = place.token(org="air", groups=[])
    assert (await place.me(token)).json()["principal"] == "ann"
    assert await place.send(token, "lamp-1") == 200
    assert await place.send(token) == 404


async def test_a_token_is_never_called_as_somebody_on_record_is(place: Place) -> None:
    """Neither in the audit nor where streams are counted, whatever its issuer calls the subject."""
    site = place.site
    token = place.token(org="air", sub="boss")
    name = f"oidc:{place.issuer.url}#boss"
    assert (await place.me(token)).json()["principal"] == name
    access: Any = site.rig.application.ports.access
    caller = access.caller(f"Bearer {token}".encode())
    assert access.who(caller) == (name, None)
    assert access.identity(caller).principal == name
    await on_record(place)
    known = access.caller(f"Bearer {place.token(org='air', groups=[])}".encode())
    assert access.who(known)[0] == access.identity(known).principal == "ann"


async def on_record(place: Place) -> Principal:
    ann = Principal(id="ann", tenant_id="ground", kind=Kind.USER, name="ann")
    identity = Credential(
        id="ann@issuer",
        principal_id="ann",
        scheme=Scheme.OIDC,
        name="",
        issuer=place.issuer.url,
        subject="ada",
        created_us=0,
    )
    binding = Binding(id="ann", subject="ann", role="operator", tenant_id="ground")
    await place.site.change(Put(ann), Put(identity), Put(binding))
    return ann


async def test_the_directory_beats_a_token_that_is_valid(place: Place) -> None:
    ann = await on_record(place)
    token = place.token(org="air")
    assert await place.send(token, "lamp-1") == 200
    await place.site.change(Put(replace(ann, disabled_us=1)))
    assert (await place.me(token)).json()["detail"] == "the token belongs to somebody who was disabled"
    assert await place.send(token, "lamp-1") == 401
    await place.site.change(Put(replace(ann, not_before_us=seconds_now() * 1_000_000)))
    assert (await place.me(token)).json()["detail"] == "the token was revoked"
    assert await place.send(place.token(org="air", iat=seconds_now() + 20), "lamp-1") == 200


async def test_keys_are_rotated_and_the_issuer_goes_away(place: Place) -> None:
    """A token with a new key lets its owner in once the key was fetched; nobody waits for that."""
    old, new = place.token(org="air"), place.token(STRANGER, org="air", kid="ec2")
    assert await place.send(old) == 200
    place.issuer.body = public_set(EC, RSA).replace(b'"kid": "rsa"', b'"kid": "gone"')[:-2] + _entry(STRANGER, "ec2")
    refused = await place.me(new)
    assert refused.status_code == 401
    assert "is signed with a key that its issuer did not have" in refused.json()["detail"]
    keys: Any = place.keys
    keys._begun_at = -1e9  # ten seconds later
    await place.me(new)
    await until(keys._fetching.done)
    assert await place.send(new) == 200
    assert await place.send(old) == 200

    async def away(_request: web.Request) -> web.StreamResponse:
        raise ConnectionError

    place.issuer.keys = away
    keys._begun_at = -1e9
    assert (await place.me(place.token(STRANGER, org="air", kid="ec3"))).status_code == 401
    await until(keys._fetching.done)
    assert place.site.rig.counters["oidc.failed"] == 1
    assert await place.send(place.token(org="air")) == 200


def _entry(key: Key, kid: str) -> bytes:
    return b", " + public_set(key).partition(b"[")[2].replace(b'"kid": "ec"', f'"kid": "{kid}"'.encode())


async def test_before_the_keys_are_there_a_token_is_not_judged(tmp_path: Path) -> None:
    async with serving(public_set(EC)) as issuer:
        issuer.described = {"issuer": "another"}
        async with guarded(tmp_path, oidc={"issuer": issuer.url, "audience": AUDIENCE}) as site:
            place = Place(site, issuer)
            refused = await place.me(place.token())
            assert refused.status_code == 503
            assert (await site.send("operator")).status_code == 200


@pytest.mark.parametrize("text", ["a.b.c", "", "homing", "Homing_2F7QW9ZD_x"])
async def test_what_is_neither_key_nor_token_is_refused(place: Place, text: str) -> None:
    assert (await place.me(text)).status_code == 401


@pytest.mark.parametrize("count", [FEW, pytest.param(FORGED, marks=pytest.mark.long)])
async def test_forged_tokens_let_nobody_in(place: Place, count: int) -> None:
    accepted = [text for text in islice(forged(place), count) if isinstance(place.tokens.verify(text), Caller)]
    assert accepted == []
    good = place.token(org="air")
    assert isinstance(place.tokens.verify(good), Caller)
    for text in islice(forged(place), 40):
        assert (await place.me(text)).status_code == 401


def forged(place: Place) -> Iterator[str]:
    """Tokens of every class that must count for nothing, again and again, no two alike."""
    random, now = Random(7), seconds_now()
    header, body, signature = place.token(org="air").split(".")
    public = RSA.as_pem(private=False)
    wrong: list[dict[str, Any]] = [
        {"iss": "https://other.example"},
        {"iss": None},
        {"aud": "somebody else"},
        {"aud": None},
        {"exp": now - 60},
        {"exp": None},
        {"nbf": now + 600},
        {"exp": now + 30 * 24 * 3600},
        {"sub": None},
        {"org": None},
        {"groups": [7]},
    ]
    bad = [place.token(**{"org": "air", **change}) for change in wrong]
    bad += [place.token(STRANGER, org="air"), place.token(org="air", kid="unknown")]
    for number in range(FORGED):
        yield from bad if number == 0 else ()
        own = part({**claims(iss=place.issuer.url, org="air", groups=[GROUP]), "exp": now + 600, "jti": number})
        yield f"{part({'alg': 'none', 'kid': 'ec'})}.{own}."
        yield f"{part({'alg': 'None', 'kid': 'ec'})}.{own}.{signature}"
        hs = f"{part({'alg': 'HS256', 'kid': 'rsa', 'n': number})}.{own}"
        yield f"{hs}.{part(hmac.digest(public, hs.encode(), hashlib.sha256))}"
        yield f"{part({'alg': 'ES256', 'kid': 'ec', 'jku': 'https://evil.example'})}.{own}.{signature}"
        yield f"{part({'alg': 'ES256', 'kid': f'unknown-{number}'})}.{own}.{signature}"
        yield f"{header}.{own}.{signature}"  # another body
        yield f"{header}.{body}.{part(random.randbytes(64))}"  # a guessed signature
        yield f"{header}.{body}.{part(flipped(signature, random))}"
        yield f"{part({'alg': 'RS256', 'kid': 'ec'})}.{own}.{signature}"
        yield random.randbytes(24).hex() + ".e30." + signature


def flipped(signature: str, random: Random) -> bytes:
    """The signature with one bit changed."""
    raw = bytearray(urlsafe_b64decode(signature + "=="))
    raw[random.randrange(len(raw))] ^= 1 << random.randrange(8)
    return bytes(raw)
