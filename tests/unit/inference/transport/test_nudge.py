"""Nudges over pub/sub."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis
from django.conf import settings

from inference.transport.keys import Keys
from inference.transport.nudge import Topic, nudge


@pytest.mark.parametrize("topic", Topic)
def test_a_nudge_reaches_the_channel_of_its_prefix(topic: Topic) -> None:
    prefix = f"{settings.TANDEM.REDIS_PREFIX}-nudge"
    with redis.Redis.from_url(settings.REDIS_URL) as client, client.pubsub() as pubsub:
        pubsub.subscribe(Keys(prefix).nudges)
        assert pubsub.get_message(timeout=10)["type"] == "subscribe"
        nudge(settings.REDIS_URL, prefix, topic)
        message = pubsub.get_message(timeout=10)
    assert message is not None
    assert message["data"] == topic.encode()


@pytest.mark.parametrize("url", ["unix://{}/nobody.sock", "redis://127.0.0.1:1/0"])
def test_without_redis_it_only_logs(
    url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    nudge(url.format(tmp_path), "x", Topic.KEYS)
    assert "gateways learn of the new keys a few seconds later" in caplog.text
