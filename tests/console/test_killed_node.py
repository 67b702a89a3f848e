"""A node is killed whose stream a page reads; the next connection of the browser finds another node."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from homing_rig.chaos.proxy import FaultProxy
from homing_rig.harness import Caller, Device, caller, cluster_of, devices
from homing_rig.services import MosquittoProcess, RedisProcess
from tests.console.conftest import OpenPage
from tests.waiting import PATIENCE

pytestmark = pytest.mark.asyncio(loop_scope="session")
expect.set_options(timeout=PATIENCE * 1000)

MANY = 60
"""Commands before the node is killed, and as many while the page has no node."""
ENDED = """(ids) => ids.filter((id) => {
    const link = document.querySelector(`a[href="#/commands/${id}"]`);
    return link?.closest("tr").innerText.includes("succeeded");
}).length"""


async def sent(client: Caller, first: int) -> list[str]:
    """The ids of commands that the second node has sent, each with its outcome."""
    ids = []
    for number in range(first, first + MANY):
        status, command = await client.command(1, f"dock-{number}", {"number": number})
        assert (status, command["state"]) == (200, "succeeded")
        ids.append(str(command["id"]))
    return ids


async def all_are_shown(page: Page, ids: list[str]) -> None:
    """Return once the page has a row for each that says how it ended, and no other row."""
    await expect(page.locator("[data-row]")).to_have_count(len(ids))
    await page.wait_for_function(f"(ids) => ({ENDED})(ids) === ids.length", arg=ids)


async def test_a_killed_node_costs_a_page_no_event(mosquitto: MosquittoProcess, open_page: OpenPage) -> None:
    with RedisProcess() as redis, cluster_of(2, redis, mosquitto) as cluster:
        first, second = cluster.nodes
        async with (
            FaultProxy("127.0.0.1", first.port) as proxy,
            caller(cluster) as client,
            devices(mosquitto, Device.answer),
            open_page(f"http://127.0.0.1:{proxy.port}/console/#/commands") as page,
        ):
            await expect(page.get_by_text("live", exact=True)).to_be_visible()
            ids = await sent(client, 0)
            await all_are_shown(page, ids)
            first.kill()
            await expect(page.get_by_text("connection lost, trying again")).to_be_visible()
            cluster.end_lease(first.node_id)
            ids += await sent(client, MANY)
            proxy.target = ("127.0.0.1", second.port)
            await all_are_shown(page, ids)
