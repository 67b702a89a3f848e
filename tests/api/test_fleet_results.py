"""The results of a fleet run: pages of targets, and all of them as one table."""

from __future__ import annotations

import csv
from io import BytesIO

import pyarrow.parquet as pq

from tests.api.rig import Rig
from tests.api.test_fleets import RUNS, becomes, begin, counted, post, tell


async def test_results_are_a_table_for_spreadsheets_too(keeping: Rig) -> None:
    odd = ["dock-1", "-2-3", "@sum"]
    await tell(keeping, odd)
    await tell(keeping, ["dock-1"], online=False)
    run = await begin(keeping, odd, "refuse")
    await counted(keeping, run, failed=2, waiting=1)
    await post(keeping, run, "abort")
    await becomes(keeping, run, "aborted")
    url, csv_wanted = f"{RUNS}/{run['id']}/targets", {"Accept": "text/html, text/csv;q=0.9"}
    answer = await keeping.http.get(url, headers=csv_wanted)
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.headers["content-disposition"] == f'attachment; filename="{run["id"]}.csv"'
    head, *rows = csv.reader(answer.text.splitlines())
    listed = (await keeping.http.get(url)).json()["targets"]
    assert head == list(listed[0])
    assert [row[0] for row in rows] == ["dock-1", "'-2-3", "%40sum"], "no cell is a formula"
    assert rows[0][1:] == [*(str(listed[0][name] or "") for name in head[1:])]
    assert [row[head.index("code")] for row in rows] == ["", "42", "42"]
    some = await keeping.http.get(url, headers=csv_wanted, params={"state": "skipped"})
    assert [row[0] for row in csv.reader(some.text.splitlines())] == ["device_id", "dock-1"]
    assert (await keeping.http.get(url, headers=csv_wanted, params={"limit": 1})).status_code == 422
    as_file = await keeping.http.get(url, headers={"Accept": "application/vnd.apache.parquet"})
    assert as_file.headers["content-disposition"] == f'attachment; filename="{run["id"]}.parquet"'
    table = pq.read_table(BytesIO(as_file.content))
    for name in ("device_id", "wave", "state", "command_id", "message"):
        assert table.column(name).to_pylist() == [one[name] for one in listed]


async def test_what_a_device_has_answered_is_among_the_results(keeping: Rig) -> None:
    await tell(keeping, ["dock-1"])
    run = await begin(keeping, ["dock-1"], "ok")
    await becomes(keeping, run, "succeeded")
    (target,) = (await keeping.http.get(f"{RUNS}/{run['id']}/targets")).json()["targets"]
    assert target["result"] == {"height": 20.5, "serial": 18446744073709551615}
