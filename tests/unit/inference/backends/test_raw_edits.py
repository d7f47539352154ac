"""What an operator changes of a body, and that nothing else changes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from inference.backends.raw_edits import Edits, edited, renamed

BILLING = '{"type":"text","text":"x-anthropic-billing-header: cc_version=2"}'
PROMPT = '{"type":"text","text":"Be \\"kind\\"."}'
# Nothing that a decoder would give back as it was: order, spaces, escapes, numbers, keys twice.
UNUSUAL = (
    '{ "zeta" : [1.0, 1e5, 123456789012345678901234567890, -0.0],\n'
    '\t"model":"MODEL", "messages":[{"role":"user","content":[\r\n'
    '{"type":"hologram","model":"inner","data":"\\u00fc\\ud83d\\ude00ü\u2028"},'
    '{"type":"thinking","thinking":"","signature":"EqQB+/=="}]}],'
    '"betas":{"x":1,"x":2},"max_tokens":1.0e1,"stream" :true }\n'
)


def body(system: str | None) -> bytes:
    said = "" if system is None else f',"system": {system} '
    return f'{{"model":"m"{said},"x":1}}'.encode()


def test_only_the_models_name_changes() -> None:
    assert edited(UNUSUAL.encode(), Edits(model="claude-9")) == (
        UNUSUAL.replace('"MODEL"', '"claude-9"').encode()
    )


def test_an_answers_model_has_the_name_that_callers_know() -> None:
    assert renamed(b'{"id":1, "model" :"up","content":[{"model":"up"}]}', "vendor/\u00fc") == (
        '{"id":1, "model" :"vendor/ü","content":[{"model":"up"}]}'.encode()
    )
    assert renamed(b'{"input_tokens": 5}', "m") == b'{"input_tokens": 5}'


def test_parameters_take_the_place_of_fields() -> None:
    edits = Edits(model="up", parameters={"x": {"y": [1]}, "top_k": 5})
    assert edited(body(None), edits) == b'{"model":"up","x":{"y":[1]},"top_k":5}'


def test_counting_takes_those_parameters_that_change_the_prompt() -> None:
    thinking = {"type": "disabled"}
    edits = Edits(model="up", parameters={"temperature": 1, "thinking": thinking})
    assert json.loads(edited(body(None), edits, counting=True)) == {
        "model": "up",
        "x": 1,
        "thinking": thinking,
    }


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("null", '"Be \\"kind\\"."'),
        ('""', '"Be \\"kind\\"."'),
        ('"\\u00fc"', f'[{PROMPT},{{"type":"text","text":"\\u00fc"}}]'),
        ("[ ]", f"[{PROMPT}]"),
        ('[ {"type":"text", "text":"a"} ]', f'[ {PROMPT},{{"type":"text", "text":"a"}} ]'),
        (f'[{BILLING}, {{"x":1}}]', f'[{BILLING},{PROMPT}, {{"x":1}}]'),
        (f"[{BILLING} ]", f"[{BILLING},{PROMPT} ]"),
        ('[5, "a"]', f'[{PROMPT},5, "a"]'),
        ('{"type":"text"}', '{"type":"text"}'),
        ("7", "7"),
    ],
)
def test_the_operators_system_prompt_goes_before_the_callers(before: str, after: str) -> None:
    edits = Edits(model="m", system='Be "kind".')
    assert edited(body(before), edits) == body(after)
    assert edited(body(before), edits, counting=True) == body(after)


def test_an_attribution_in_a_plain_system_prompt_stays_first() -> None:
    said = '"x-anthropic-billing-header: a\\nYou are."'
    assert edited(body(said), Edits(model="m", system='Be "kind".')) == body(
        f'[{{"type":"text","text":{said}}},{PROMPT}]'
    )


def test_without_a_system_prompt_the_operators_is_it() -> None:
    sent: dict[str, Any] = json.loads(edited(body(None), Edits(model="m", system="Hi.")))
    assert sent == {"model": "m", "x": 1, "system": "Hi."}
