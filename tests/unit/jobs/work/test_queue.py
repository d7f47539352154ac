"""Whose turn it is, and of which row."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from inference.request import Lane
from jobs.models import Work
from jobs.work import pending
from jobs.work.enqueue import NewWork, insert
from jobs.work.queue import Ask, Queue, Taken
from jobs.work.records import Engine
from tests.work import MODEL, new_work

pytestmark = pytest.mark.django_db

NOW = timezone.now()
LATER = NOW + timedelta(hours=20)


def queue() -> Queue:
    return Queue(Engine(str(uuid.uuid4()), MODEL, "host"))


def works(count: int, team_id: int, **fields: Any) -> list[NewWork]:
    said: dict[str, Any] = {"created_at": NOW, "deadline_at": LATER} | fields
    return [new_work(team_id=team_id, **said) for _ in range(count)]


def teams(taken: Iterable[Taken]) -> Counter[int]:
    return Counter(each.row.team_id for each in taken)


def ids(taken: Iterable[Taken]) -> list[str]:
    return [str(each.row.id) for each in taken]


def end(taken: Iterable[Taken]) -> None:
    Work.objects.filter(pk__in=ids(taken)).delete()


def test_teams_share_the_places_alike() -> None:
    insert([*works(9, 1), *works(9, 2, deadline_at=LATER - timedelta(hours=9)), *works(9, 3)])
    assert teams(queue().take(Ask(6))) == {1: 2, 2: 2, 3: 2}


def test_what_is_asked_for_by_name_comes_first() -> None:
    insert([*works(3, 1), *works(3, 2)])
    mine = queue()
    named = list(Work.objects.filter(team_id=2).order_by("-id").values_list("pk", flat=True)[:2])
    asked = [str(request_id) for request_id in named]
    assert {each.row.id for each in mine.take(Ask(2, first=asked))} == set(named)
    # They run already.
    assert teams(mine.take(Ask(3, first=asked))) == {1: 3}


def test_what_a_team_does_not_need_the_others_get() -> None:
    insert([*works(20, 1), *works(1, 2), *works(3, 3)])
    assert teams(queue().take(Ask(12))) == {1: 8, 2: 1, 3: 3}
    assert teams(queue().take(Ask(50))) == {1: 12}


def test_a_place_goes_to_the_team_that_has_the_fewest_here() -> None:
    insert(works(20, 1))
    mine, other = queue(), queue()
    running = mine.take(Ask(4))
    insert([*works(20, 2), *works(1, 3)])
    assert teams(mine.take(Ask(1))) == {2: 1}
    assert teams(mine.take(Ask(1))) == {3: 1}
    assert teams(mine.take(Ask(3))) == {2: 3}
    # Both have four now.
    assert teams(mine.take(Ask(2))) == {1: 1, 2: 1}
    end(running)
    assert teams(mine.take(Ask(4))) == {1: 4}
    # What runs elsewhere does not count.
    assert teams(other.take(Ask(2))) == {1: 1, 2: 1}


def test_a_team_that_has_nothing_here_is_found_behind_those_that_have() -> None:
    insert(work for team in (1, 2, 3) for work in works(5, team))
    mine = queue()
    running = mine.take(Ask(3))
    end(each for each in running if each.row.team_id == 3)
    assert teams(mine.take(Ask(1))) == {3: 1}


def test_rows_of_both_lanes_count_for_their_team() -> None:
    insert([*works(2, 1, lane=Lane.BACKGROUND), *works(9, 1), *works(9, 2)])
    assert teams(queue().take(Ask(6))) == {1: 3, 2: 3}


def test_where_teams_are_more_than_places_they_take_turns() -> None:
    insert(work for team in range(1, 8) for work in works(3, team))
    mine = queue()
    turns = []
    for _ in range(10):
        (taken,) = mine.take(Ask(1))
        turns.append(taken.row.team_id)
        end([taken])
    assert turns == [1, 2, 3, 4, 5, 6, 7, 1, 2, 3]
    assert teams(mine.take(Ask(5))) == {4: 1, 5: 1, 6: 1, 7: 1, 1: 1}


def test_a_background_response_of_any_team_is_before_the_batches_of_all() -> None:
    background = works(1, 1, lane=Lane.BACKGROUND)
    insert([*works(5, 1), *works(5, 2), *background])
    mine = queue()
    assert ids(mine.take(Ask(1))) == [background[0].id]
    insert(works(3, 1, lane=Lane.BACKGROUND))
    taken = mine.take(Ask(4))
    assert [each.row.lane for each in taken] == ["background"] * 3 + ["batch"]
    assert taken[-1].row.team_id == 2


def test_urgent_rows_come_before_all_the_earliest_deadline_first_whose_ever_they_are() -> None:
    soon = [NOW + timedelta(minutes=minutes) for minutes in (30, 31, 32, 33)]
    day = {"created_at": NOW - timedelta(days=1)}
    urgent = [work for deadline in soon for work in works(1, 1, deadline_at=deadline, **day)]
    other = works(1, 3, deadline_at=soon[2] + timedelta(seconds=1), **day)
    insert([*works(9, 2, lane=Lane.BACKGROUND), *reversed(urgent), *other])
    assert pending.rise(NOW) == 5
    taken = queue().take(Ask(6))
    assert ids(taken[:5]) == [each.id for each in (*urgent[:3], *other, urgent[3])]
    assert [each.is_urgent for each in taken] == [True] * 5 + [False]
    assert taken[5].row.team_id == 2


def test_of_a_team_the_earliest_deadline_comes_first() -> None:
    hours = [timedelta(hours=hours) for hours in (5, 3, 9)]
    rows = [work for each in hours for work in works(1, 1, deadline_at=NOW + each)]
    insert(rows)
    mine = queue()
    assert [ids(mine.take(Ask(1)))[0] for _ in range(3)] == [rows[n].id for n in (1, 0, 2)]


def test_rows_of_one_deadline_that_begin_alike_follow_each_other() -> None:
    insert([work for prefix in (5, -3, 2**40, -3, 5, 2**40) for work in works(1, 1, prefix=prefix)])
    mine = queue()
    taken = [each for _ in range(3) for each in mine.take(Ask(2))]
    assert [each.prefix for each in taken] == [-3, -3, 5, 5, 2**40, 2**40]
    assert ids(taken[:2]) == sorted(ids(taken[:2]))


def test_a_team_that_is_passed_over_gets_nothing_and_keeps_nobody_waiting() -> None:
    urgent = works(3, 1, created_at=NOW - timedelta(days=1), deadline_at=NOW + timedelta(minutes=9))
    insert([*urgent, *works(9, 1), *works(2, 2), *works(9, 3)])
    pending.rise(NOW)
    assert teams(queue().take(Ask(6, not_of={1}))) == {2: 2, 3: 4}
    assert queue().take(Ask(6, not_of={1, 3})) == []


def test_rows_that_are_to_wait_or_late_are_passed_over_for_those_of_others() -> None:
    insert([*works(4, 1), *works(4, 2), *works(4, 3)])
    rows = Work.objects
    rows.filter(team_id=1).update(not_before=timezone.now() + timedelta(minutes=1))
    rows.filter(team_id=2).update(deadline_at=timezone.now() - timedelta(minutes=1))
    assert teams(queue().take(Ask(2))) == {3: 2}
    assert teams(queue().take(Ask(9))) == {3: 2}


def test_teams_whose_rows_all_have_to_wait_are_not_asked_one_after_another(
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    insert(work for team in range(1, 200) for work in works(1, team))
    Work.objects.update(not_before=timezone.now() + timedelta(minutes=1))
    insert(works(1, 200))
    with django_assert_max_num_queries(3):
        assert teams(queue().take(Ask(1))) == {200: 1}
