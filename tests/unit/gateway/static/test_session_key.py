"""The key that a page calls the API with."""

from __future__ import annotations

from typing import Any

from tests.scripts import Scripts

# A page and a server, played: what is posted where, and what the API answers to each call.
_PLAY = """
const posts = [];
let leave;
globalThis.addEventListener = (name, listener) => { leave = listener; };
globalThis.document = { querySelector: () => ({ value: "token" }) };
globalThis.fetch = async (url, { body, headers, keepalive = false }) => {
  posts.push([url, Object.fromEntries(body), headers["X-CSRFToken"], keepalive]);
  if (url === "close") return { ok: true };
  const said = refusal ? { error: refusal } : {
    id: `id-${posts.length}`, key: `key-${posts.length}`, prefix: "key", team: "blue",
    expires_at: new Date(Date.now() + lasts_s * 1000).toISOString(),
  };
  return { ok: !refusal, status: refusal ? 400 : 200, json: async () => said };
};
const session = new m.SessionKey({ purpose: "PLAYGROUND", open_url: "open", close_url: "close" });
const calls = [];
const statuses = [...answers];
const outcomes = [];
for (const team of teams) {
  try {
    const answer = await session.call(team, async (key) => {
      calls.push(key);
      return { status: statuses.shift() ?? 200 };
    });
    outcomes.push(answer.status);
  } catch (error) {
    outcomes.push(error.message);
  }
}
if (leaves) leave();
return { posts, calls, outcomes, shown: session.shown };
"""


def play(scripts: Scripts, *teams: str, **given: Any) -> dict[str, Any]:
    usual = {"answers": [], "lasts_s": 3600, "refusal": "", "leaves": False}
    played: dict[str, Any] = scripts.run("session_key.js", _PLAY, teams=teams, **(usual | given))
    return played


def test_one_key_serves_all_calls_of_a_team(scripts: Scripts) -> None:
    played = play(scripts, "7", "7")
    assert played["calls"] == ["key-1", "key-1"]
    assert played["posts"] == [["open", {"team": "7", "purpose": "PLAYGROUND"}, "token", False]]


def test_another_team_has_another_key_and_the_first_is_revoked(scripts: Scripts) -> None:
    played = play(scripts, "7", "8")
    assert [post[0] for post in played["posts"]] == ["open", "close", "open"]
    assert played["posts"][1][1] == {"id": "id-1"}
    assert played["calls"] == ["key-1", "key-3"]


def test_a_key_that_is_about_to_end_is_not_used_again(scripts: Scripts) -> None:
    played = play(scripts, "7", "7", lasts_s=30)
    assert [post[0] for post in played["posts"]] == ["open", "close", "open"]


def test_a_gateway_that_does_not_know_a_new_key_yet_is_asked_again(scripts: Scripts) -> None:
    played = play(scripts, "7", answers=[401, 200])
    assert played["calls"] == ["key-1", "key-1"]
    assert played["outcomes"] == [200]


def test_any_other_answer_is_the_answer(scripts: Scripts) -> None:
    assert play(scripts, "7", answers=[429])["outcomes"] == [429]


def test_leaving_the_page_revokes_the_key(scripts: Scripts) -> None:
    played = play(scripts, "7", leaves=True)
    assert played["posts"][-1] == ["close", {"id": "id-1"}, "token", True]
    assert played["shown"] is None
    assert play(scripts, leaves=True)["posts"] == []


def test_what_keeps_a_key_from_being_made_is_told(scripts: Scripts) -> None:
    played = play(scripts, "7", refusal="team: there is no such team")
    assert played["outcomes"] == ["team: there is no such team"]
