"""An unusual request and unusual answers of the Messages API, as upstreams write them.

None of them would survive being decoded and encoded anew: blocks, fields and events that nobody
here has heard of, numbers beyond 64 bits, every spelling of a string, keys in any order and twice.
`NAME` stands where the model's name does, in the upstream's way to write JSON.
"""

from __future__ import annotations

NAME = b'"@@"'


def named(text: bytes, model: str) -> bytes:
    """Return a text that names this model."""
    return text.replace(NAME, b'"%b"' % model.encode())


REQUEST = (
    b'{ "stream" : STREAM, "betas":{"zeta":1,"zeta":2}, "model" :"@@",\r\n'
    b'\t"max_tokens":64, "temperature":1.0, "budget":123456789012345678901234567890,\n'
    b'  "messages":[{"content":[{"type":"hologram","model":"inner","data":"\\u00fc\\ud83d\\ude00 '
    b'\xc3\xbc\xe2\x80\xa8\\/"},{"type":"thinking","thinking":"hm","signature":"EqQB+/=="}],'
    b'"role":"user"}],"tools":[{"type":"web_search_20990101","name":"web_search"}] , "x":-0.0e0}\n'
)
"""`STREAM` stands for whether it asks for a stream."""


def request(model: str, *, stream: bool) -> bytes:
    """Return the request for this model."""
    return named(REQUEST, model).replace(b"STREAM", b"true" if stream else b"false")


MESSAGE = (
    b'{\n  "usage": {"output_tokens":7,"input_tokens":11,"cache_read_input_tokens":5,\n'
    b'"cache_creation_input_tokens":3,"speed":"fast","cost":123456789012345678901234567890},\n'
    b'  "content": [{"type":"hologram","model":"inner","data":"\\u00fc\xc3\xbc"},'
    b'{"text":"caf\\u00e9","type":"text"}],\n'
    b'  "model" : "@@", "role":"assistant", "type":"message", "id":"msg_01Upstream",\n'
    b'  "stop_reason":"pause_turn","stop_sequence":null,"container":{"id":"c","id":"d"}}\n'
)

START = (
    b"event: message_start\n"
    b'data: {"type":"message_start","message":{"model":"@@","id":"msg_01Upstream","type":"message"'
    b',"role":"assistant","content":[],"stop_reason":null,"stop_sequence":null,"usage":{'
    b'"input_tokens":11,"cache_creation_input_tokens":3,"cache_read_input_tokens":5,'
    b'"output_tokens":1,"inference_geo":"x"}}  }\n\n'
)
REST = (
    b'event: content_block_start\ndata: {"type":"content_block_start","index":0,"content_block":'
    b'{"type":"text","text":""}       }\n\n',
    b'event: ping\ndata: {"type": "ping"}\n\n',
    b": a comment\n\n",
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":'
    b'{"type":"text_delta","text":"\\u00fc\xc3\xbc model \\"@@\\""}  }\n\n',
    b'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n',
    b'event: content_block_start\ndata: {"type":"content_block_start","index":1,"content_block":'
    b'{"type":"hologram","depth":123456789012345678901234567890}}\n\n',
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":1,"delta":'
    b'{"type":"hologram_delta","rays":[1.0,2e5]}}\n\n',
    b'event: aurora\r\nid: 7\r\ndata: {"type":"aurora",\r\ndata: "model":"@@"}\r\n\r\n',
    b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn",'
    b'"stop_sequence":null},"usage":{"output_tokens":7},"context_management":{"x":[]}}\n\n',
    b'event: message_stop\ndata: {"type":"message_stop"   }\n\n',
)
STREAM = (START, *REST)
"""A whole stream, frame by frame. Only in the first one is the model's name its own."""


def stream(model: str) -> bytes:
    """Return the stream as a caller is to have it, who knows the model by this name."""
    return named(START, model) + b"".join(REST)


ERROR = (
    b'{"error":{"message":"Overloaded \\u00fc","type":"overloaded_error"}, "request_id":"req_01"}'
)
ERROR_FRAME = b"event: error\ndata: " + ERROR.replace(b"{", b'{"type":"error",', 1) + b"\n\n"
