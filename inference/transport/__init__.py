"""The realtime path between gateways and engine workers, over Redis Streams.

A gateway puts a request on the model's queue (a stream with one consumer group); an engine worker
with a free permit takes it; events come back on the gateway's own reply stream; cancels travel on
the engine's control stream. `keys` names the streams, `frames` says what travels on them.
"""
