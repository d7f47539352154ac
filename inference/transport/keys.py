"""The names of everything that the transport keeps in Redis."""

from __future__ import annotations

from inference.request import Lane

# The consumer group that all engine workers of a model read its queue with.
GROUP = "engines"
# The lanes whose requests wait in Redis; what is in the others waits in the database.
QUEUED_LANES = (Lane.REALTIME, Lane.FLEX)


class Keys:
    """Redis keys under one prefix, so that several installs can share a server."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def queue(self, model: str, lane: Lane) -> str:
        """The stream of requests that wait for an engine of this model."""
        return f"{self._prefix}:queue:{model}:{lane}"

    def counts(self, model: str) -> str:
        """The stream of prompts whose tokens are to be counted; it needs no permit."""
        return f"{self._prefix}:counts:{model}"

    def reply(self, gateway_id: str) -> str:
        """The stream of events on their way to this gateway process."""
        return f"{self._prefix}:reply:{gateway_id}"

    def control(self, engine_id: str) -> str:
        """The stream of what this engine is told: cancels by gateways, orders by operators."""
        return f"{self._prefix}:control:{engine_id}"

    def log(self, request_id: str) -> str:
        """The stream of all events of a request that can be followed from its beginning."""
        return f"{self._prefix}:log:{request_id}"

    def log_reader(self, reader_id: str) -> str:
        """The stream that wakes a reader of logs when it has one more to read."""
        return f"{self._prefix}:logs:{reader_id}"

    def engine(self, engine_id: str) -> str:
        """The heartbeat of one engine, an `EngineReport` that expires."""
        return f"{self._prefix}:engine:{engine_id}"

    @property
    def engines(self) -> str:
        """The set of ids of all engines that were seen and not yet swept."""
        return f"{self._prefix}:engines"

    def gateway(self, gateway_id: str) -> str:
        """The heartbeat of one gateway process; it expires."""
        return f"{self._prefix}:gateway:{gateway_id}"

    @property
    def records(self) -> str:
        """The stream of records (see `records`) on their way to the database."""
        return f"{self._prefix}:records"

    @property
    def dead_records(self) -> str:
        """The stream of records that could not be kept, each with its reason."""
        return f"{self._prefix}:records:dead"

    @property
    def work_counts(self) -> str:
        """The hash that counts what became of work (see `jobs.work.metric_counts`)."""
        return f"{self._prefix}:work"

    @property
    def nudges(self) -> str:
        """The pub/sub channel that says which snapshot has changed (see `nudge.Topic`)."""
        return f"{self._prefix}:nudges"
