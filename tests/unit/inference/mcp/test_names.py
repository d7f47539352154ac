"""Every tool has a name of its own, whoever else has tools."""

from __future__ import annotations

from inference.mcp.names import ListedTool, Offer
from inference.request import Tool


def _listed(server: str, name: str) -> ListedTool:
    return ListedTool(server=server, name=name, schema={"type": "object"})


def _own(*names: str) -> list[Tool]:
    return [Tool(name=name, schema={}) for name in names]


def _names(offer: Offer) -> list[str]:
    return [tool.name for tool in offer.tools]


def test_a_tool_keeps_its_name_where_no_other_has_it() -> None:
    assert _names(Offer(_own("mine"), [_listed("clock", "now")])) == ["now"]


def test_a_caller_s_tool_keeps_its_name_and_the_server_s_gives_way() -> None:
    offer = Offer(_own("now"), [_listed("clock", "now")])
    assert _names(offer) == ["clock__now"]
    assert offer.find("now") is None
    found = offer.find("clock__now")
    assert found
    assert (found.server, found.name) == ("clock", "now")


def test_two_servers_tools_of_one_name_are_told_apart() -> None:
    offer = Offer((), [_listed("a", "now"), _listed("b", "now")])
    assert _names(offer) == ["a__now", "b__now"]


def test_a_number_follows_where_that_is_taken_too() -> None:
    offer = Offer(_own("now", "clock__now", "clock__now_2"), [_listed("clock", "now")])
    assert _names(offer) == ["clock__now_3"]


def test_names_that_differ_only_in_what_no_model_takes_are_told_apart() -> None:
    offer = Offer((), [_listed("a", "time.now"), _listed("a", "time/now")])
    assert _names(offer) == ["a__time_now", "a__time_now_2"]


def test_a_name_is_never_longer_than_every_model_takes() -> None:
    offer = Offer((), [_listed("a", "x" * 100), _listed("b", "x" * 100), _listed("b", "x" * 101)])
    names = _names(offer)
    assert len(set(names)) == 3
    assert all(len(name) <= 64 for name in names)


def test_the_same_tools_have_the_same_names_again() -> None:
    listed = [_listed("a", "now"), _listed("b", "now"), _listed("b", "later")]
    assert _names(Offer(_own("later"), listed)) == _names(Offer(_own("later"), listed))


def test_a_caller_may_mean_a_tool_by_any_of_its_names() -> None:
    offer = Offer(_own("mine"), [_listed("a", "now"), _listed("b", "now"), _listed("b", "later")])
    assert offer.chosen("mine") == "mine"
    assert offer.chosen("later") == "later"
    assert offer.chosen("b__later") == "later"
    assert offer.chosen("b__now") == "b__now"
    assert offer.chosen("never") is None


def test_a_tool_that_is_offered_no_more_has_a_name_that_is_nobody_else_s() -> None:
    offer = Offer(_own("now"), [_listed("a", "later")])
    assert offer.name_of("a", "later") == "later"
    assert offer.name_of("gone", "earlier") == "earlier"
    assert offer.name_of("gone", "now") == "gone__now"
