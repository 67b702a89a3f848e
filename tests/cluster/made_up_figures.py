"""Requests that a program made up from /openapi.json, against a real node; docs/performance.md has what they showed.

python -m tests.cluster.made_up_figures open               nobody is asked for a key
python -m tests.cluster.made_up_figures admin              with the key of an administrator
python -m tests.cluster.made_up_figures nobody             without one, where one is needed

Every answer has to be one that /openapi.json describes, and none may be a mistake of the node (5xx, but for 503 and
504 where they are described). `--cases N` sets how many are made up for each operation at most.
"""

from __future__ import annotations

import argparse
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.core.access.keys import make_key
from tests.cluster.harness import NodeProcess, cluster_of
from tests.services import MosquittoProcess, RedisProcess

CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,"
    "response_schema_conformance,negative_data_rejection,unsupported_method,allow_header_conformance"
)
ENDLESS = r"^/v1/(events/stream|commands/events)$"
"""Streams that do not end."""


@contextmanager
def node(*, guarded: bool) -> Iterator[tuple[NodeProcess, str]]:
    """A node with all of its parts, and the key of its administrator."""
    key = make_key(secrets.token_bytes).text
    with tempfile.TemporaryDirectory() as folder, MosquittoProcess() as broker, RedisProcess() as redis:
        (Path(folder) / "key").write_text(key)
        settings = {
            "HOMING_WEBHOOKS_SECRET_KEY": secrets.token_hex(32),
            "HOMING_EVENTS_URL": redis.node_url,
            "HOMING_COMMAND_DEFAULT_TIMEOUT": "1s",
        }
        if guarded:
            settings |= {
                "HOMING_ACCESS_URL": f"sqlite:///{folder}/access.db",
                "HOMING_ACCESS_MIGRATE": "true",
                "HOMING_ACCESS_BOOTSTRAP_KEY_FILE": f"{folder}/key",
            }
        with cluster_of(1, redis, broker, **settings) as cluster:
            yield cluster.nodes[0], key


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("who", choices=("open", "admin", "nobody"))
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with node(guarded=options.who != "open") as (one, key):
        headers = ["-H", f"Authorization: Bearer {key}"] if options.who == "admin" else []
        run = [
            *(sys.executable, "-m", "schemathesis.cli", "run", f"{one.url}/openapi.json", *headers),
            *("-H", "Prefer: respond-async", "--checks", CHECKS, "--exclude-path-regex", ENDLESS),
            *("--phases", "examples,coverage,fuzzing", "--mode", "all", "--max-examples", str(options.cases)),
            *("--seed", str(options.seed), "--continue-on-failure", "--no-color", "--request-timeout", "60"),
        ]
        return subprocess.run(run, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
