"""The event loop of a real operator process is never blocked: one under watch, over real runs on the cluster.

Secrets come from files here, as they do from mounted Secrets, and the session store is a real S3 server: both are read
and written over the whole life of a run, but in threads.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from cluster import Cluster
from demo.stage import BOT_TOKEN, MODEL_KEY
from tests.e2e.scene import Scene, scene
from tests.standins.ministack import ministack

S3 = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
SLOW = re.compile(r"Executing .* took (\d+\.\d+) seconds")


@pytest.fixture(scope="module")
def world(shared_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("hygiene")
    with ministack(folder) as endpoint, scene(shared_cluster, folder, "hygiene") as found:
        found.stage.environ |= {**S3, "HYGIENE": str(folder / "hygiene.jsonl"), "PYTHONASYNCIODEBUG": "1"}
        client = boto3.client(
            "s3",
            endpoint_url=endpoint,
            region_name="us-east-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )
        client.create_bucket(Bucket="hummingbird")
        secrets = {"bot": BOT_TOKEN, "key": MODEL_KEY}
        for name, value in secrets.items():
            (folder / name).write_text(value)
        found.configure(
            gitlab={"url": found.gitlab.url, "token_env": None, "token_file": str(folder / "bot")},
            models={"google_api_key_env": None, "google_api_key_file": str(folder / "key")},
            sessions={"store": "s3://hummingbird/agent", "s3_endpoint": endpoint},
        )
        yield found


@pytest.fixture(scope="module")
def offences(world: Scene) -> list[dict[str, Any]]:
    """What a process did on its loop that answered, was cancelled, resumed and ended."""
    operator = world.stage.start("operator-watched", program="tests.e2e.watched_operator")
    try:
        operator.wait_until_ready()
        world.pool_ready()
        world.run("first")
        assert world.finished("first")["reason"] == "Completed"
        session = world.status("first")["session"]["id"]
        world.run("reply", session=session, message="why?")
        world.finished("reply")
        world.run("refused", workflow="unknown")
        world.finished("refused")
        world.run("cancelled", workflow="plain", cancel=True)
        world.finished("cancelled")
    finally:
        operator.stop()
    text = Path(world.stage.environ["HYGIENE"]).read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_no_blocking_call_is_made_on_the_loop(offences: list[dict[str, Any]]) -> None:
    places = sorted({f"{each['event']} {each['about']} in {' < '.join(each['stack'][:4])}" for each in offences})
    print("\n".join(places))
    assert places == []


def test_no_callback_of_the_loop_takes_a_second(world: Scene, offences: list[dict[str, Any]]) -> None:
    lines = (world.stage.folder / "operator-watched.log").read_text().splitlines()
    slow = [(float(found.group(1)), line) for line in lines if (found := SLOW.search(line))]
    for seconds, line in sorted(slow, reverse=True)[:10]:
        print(f"{seconds:.2f} s: {line[:300]}")
    assert [line for seconds, line in slow if seconds >= 1] == []
