"""A webhook that comes while the API server is away goes over a real queue to `ingest sqs`: both processes whole."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from hummingbird_operator.ingest.serve import serve_sqs
from tests.standins.gitlab import GitLabStandIn
from tests.standins.ministack import ministack
from tests.unit.ingest.test_serve import Place, free_port
from tests.unit.kube.apiserver import ApiServer

REGION = "us-east-1"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with ministack(tmp_path) as endpoint, GitLabStandIn() as gitlab, ApiServer() as api:
        made = Place(gitlab, api, tmp_path, free_port(), free_port())
        client = boto3.client("sqs", endpoint_url=endpoint, region_name=REGION)
        queue = client.create_queue(QueueName="events.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
        made.changes = {"ingest": {"queue_url": queue, "sqs_endpoint": endpoint, "sqs_region": REGION}}
        yield made


async def test_gitlab_hears_that_it_went_well_and_the_run_is_made_when_the_api_server_is_back(place: Place) -> None:
    place.hook()
    place.api.refuse()
    async with place.webhook():
        note = await place.says("/hummingbird look at the log")
        _, metrics = await asyncio.to_thread(place.fetch, "metrics")
    assert 'hummingbird_ingest_answers_total{status="202"} 1.0' in metrics
    project = place.gitlab.state.project("group/app")
    assert project is not None
    assert [hook.recent_failures for hook in project.hooks.values()] == [0]
    place.api.listen()
    consuming = asyncio.create_task(serve_sqs(place.settings(), place.workflows(), place.options()))
    try:
        (run,) = await asyncio.wait_for(place.some_runs(), 60)
    finally:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(consuming, 60)
    assert (run["spec"]["trigger"]["noteId"], run["spec"]["message"]) == (note, "at the log")
