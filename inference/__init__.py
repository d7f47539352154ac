"""The engine room: canonical types, catalogue, admission, engines and the realtime transport."""
