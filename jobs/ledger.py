"""The ledger: every movement of a team's money, each made once, under its account's lock.

Entries are only ever added. An account's balance and its entries' count, and the usage by day,
change in the transaction that adds the entry, so that they never differ from the entries' sums;
`jobs.recount` computes all of it anew. Amounts are whole micro-units.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from datetime import date, datetime

import msgspec
from django.db import connection, transaction
from django.utils import timezone

from inference.errors import ErrorCode, TandemError
from inference.events import Usage
from jobs.amounts import MAX_MICROS
from jobs.bulk import insert
from jobs.models import Account, LedgerEntry, UsageDay


class Charge(msgspec.Struct, frozen=True, kw_only=True):
    """What a request costs and why; `cost_micros` 0 with a `reason` is usage that is waived."""

    request_id: str
    team_id: int
    key_id: str
    model: str
    lane: str
    usage: Usage
    cost_micros: int
    price_id: int | None
    reason: str = ""


class AccountState(msgspec.Struct, frozen=True, kw_only=True):
    """What may be spent, as of the account's entry number `version`.

    `day` (YYYY-MM-DD) and `month` (YYYY-MM) are UTC's at the time of reading; what was spent in
    them is what usage entries made in them took.
    """

    version: int
    balance_micros: int
    day: str
    day_spent_micros: int
    month: str
    month_spent_micros: int


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    """The columns of a `LedgerEntry`, but for its id."""

    account_id: int
    number: int
    kind: str
    reference: str
    amount_micros: int
    balance_after_micros: int
    created_at: datetime
    description: str = ""
    actor: str = ""
    request_id: str | None = None
    model: str = ""
    lane: str = ""
    price_id: int | None = None
    input_tokens: int = 0
    cached_tokens: int = 0
    cache_written_tokens: int = 0
    output_tokens: int = 0


class _Movement(msgspec.Struct, frozen=True):
    """What someone wants to post by hand; with a nonce, no more than once."""

    kind: LedgerEntry.Kind
    amount_micros: int
    nonce: str
    actor: str
    description: str


class _DayUse(msgspec.Struct, kw_only=True):
    """The columns of a `UsageDay`, but for its id."""

    team_id: int
    key_id: str
    day: date
    model: str
    lane: str
    requests: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    cache_written_tokens: int = 0
    output_tokens: int = 0
    cost_micros: int = 0


def charge(charges: Sequence[Charge], now: datetime) -> dict[str, int]:
    """Post one usage entry for each request that has none; return every request's cost.

    A request that has an entry keeps it, whatever it would cost now. Call it in a transaction.
    """
    if not charges:
        return {}
    accounts = _lock(each.team_id for each in charges)
    ids = [each.request_id for each in charges]
    posted = LedgerEntry.objects.filter(request_id__in=ids)
    costs = {
        str(request_id): -amount
        for request_id, amount in posted.values_list("request_id", "amount_micros")
    }
    entries: list[_Entry] = []
    days: dict[tuple[int, str, str, str], _DayUse] = {}
    for each in charges:
        if each.request_id not in costs:
            costs[each.request_id] = each.cost_micros
            entries.append(_usage_entry(accounts[each.team_id], each, now))
            _count(days, each, now.date())
    if entries:
        insert(LedgerEntry, entries)
        Account.objects.bulk_update(accounts.values(), ["balance_micros", "entries"])
        insert(UsageDay, list(days.values()), _ADD_TO_DAY)
    return costs


def top_up(
    team_id: int, amount_micros: int, *, nonce: str = "", actor: str = "", description: str = ""
) -> LedgerEntry:
    """Add credit that was paid for. With a nonce, once: the same again returns the first entry.

    Raises `TandemError` INVALID_REQUEST for an amount that is not positive or too large, and for
    a nonce that was used for another amount.
    """
    _check_amount(amount_micros, lowest=1)
    movement = _Movement(LedgerEntry.Kind.TOP_UP, amount_micros, nonce, actor, description)
    return _post_once(team_id, movement)


def adjust(
    team_id: int, amount_micros: int, *, nonce: str = "", actor: str = "", description: str = ""
) -> LedgerEntry:
    """Add to the balance or take from it, as an operator sees fit; with a nonce, once.

    Raises `TandemError` INVALID_REQUEST as `top_up` does.
    """
    _check_amount(amount_micros, lowest=-MAX_MICROS)
    movement = _Movement(LedgerEntry.Kind.ADJUSTMENT, amount_micros, nonce, actor, description)
    return _post_once(team_id, movement)


def refund(
    request_id: str, amount_micros: int | None = None, *, actor: str = "", description: str = ""
) -> LedgerEntry:
    """Give back what a request cost, or a part of it, once: the same again returns the first entry.

    Raises `TandemError`: NOT_FOUND without a usage entry, INVALID_REQUEST for an amount that is
    not positive or more than it cost, or not that of its first refund.
    """
    usage = LedgerEntry.objects.filter(request_id=request_id).first()
    if usage is None:
        raise TandemError(ErrorCode.NOT_FOUND, f"request {request_id} has no entry in the ledger")
    cost_micros = -usage.amount_micros
    amount_micros = cost_micros if amount_micros is None else amount_micros
    if not 0 < amount_micros <= cost_micros:
        raise TandemError(
            ErrorCode.INVALID_REQUEST,
            f"request {request_id} cost {cost_micros:,} micro-units: no more can be given back, "
            "and no less than 1",
        )
    return _post_once(
        usage.account_id,
        _Movement(
            kind=LedgerEntry.Kind.REFUND,
            amount_micros=amount_micros,
            nonce=str(usage.request_id),
            actor=actor,
            description=description or f"Refund of request {usage.request_id}",
        ),
    )


def read_state(team_id: int) -> AccountState:
    """Return what a team may spend now; a team that never had an entry has version 0."""
    return read_states([team_id], timezone.now())[team_id]


def read_states(team_ids: Sequence[int], now: datetime) -> dict[int, AccountState]:
    """Return what each team may spend, all of it as of one moment: one statement reads it."""
    day = now.date()
    with connection.cursor() as cursor:
        cursor.execute(_STATES, [list(team_ids), day, day.replace(day=1), day])
        rows = cursor.fetchall()
    return {
        team_id: AccountState(
            version=version,
            balance_micros=balance,
            day=day.isoformat(),
            day_spent_micros=int(spent_today),
            month=day.isoformat()[:7],
            month_spent_micros=int(spent),
        )
        for team_id, version, balance, spent_today, spent in rows
    }


# One statement sees one moment, whatever commits meanwhile.
_STATES = """
SELECT team.id, coalesce(account.entries, 0), coalesce(account.balance_micros, 0),
    coalesce(spent.today, 0), coalesce(spent.month, 0)
FROM unnest(%s::bigint[]) AS team (id)
LEFT JOIN jobs_account AS account ON account.team_id = team.id
LEFT JOIN LATERAL (
    SELECT sum(cost_micros) FILTER (WHERE day = %s) AS today, sum(cost_micros) AS month
    FROM jobs_usageday
    WHERE team_id = team.id AND day BETWEEN %s AND %s
) AS spent ON true
"""

_ADDED = [name for name in _DayUse.__struct_fields__ if name.endswith(("_tokens", "_micros"))]
_ADD_TO_DAY = "ON CONFLICT (team_id, day, model, lane, key_id) DO UPDATE SET " + ", ".join(
    f"{name} = jobs_usageday.{name} + EXCLUDED.{name}" for name in ["requests", *_ADDED]
)


def _lock(team_ids: Iterable[int]) -> dict[int, Account]:
    """Lock the accounts, made if new; in one order everywhere, so that nobody waits in a ring."""
    wanted = sorted(set(team_ids))
    Account.objects.bulk_create(map(_new_account, wanted), ignore_conflicts=True)
    locked = Account.objects.select_for_update().filter(team_id__in=wanted).order_by("team_id")
    return {account.team_id: account for account in locked}


def _new_account(team_id: int) -> Account:
    return Account(team_id=team_id)


def _check_amount(amount_micros: int, lowest: int) -> None:
    if amount_micros == 0 or not lowest <= amount_micros <= MAX_MICROS:
        raise TandemError(
            ErrorCode.INVALID_REQUEST,
            f"the amount must be from {lowest:,} to {MAX_MICROS:,} micro-units, and not 0",
        )


def _post_once(team_id: int, movement: _Movement) -> LedgerEntry:
    reference = movement.nonce or str(uuid.uuid4())
    for name, text, limit in (
        ("nonce", reference, 200),
        ("actor", movement.actor, 200),
        ("description", movement.description, 500),
    ):
        if len(text) > limit or "\0" in text:
            raise TandemError(
                ErrorCode.INVALID_REQUEST,
                f"the {name} must have at most {limit} characters, no NUL",
            )
    with transaction.atomic():
        account = _lock([team_id])[team_id]
        posted = account.ledger.filter(kind=movement.kind, reference=reference).first()
        if posted is None:
            if abs(account.balance_micros + movement.amount_micros) > MAX_MICROS:
                raise TandemError(
                    ErrorCode.INVALID_REQUEST,
                    f"the balance would be beyond {MAX_MICROS:,} micro-units",
                )
            return _post(account, movement, reference)
    if posted.amount_micros != movement.amount_micros:
        raise TandemError(
            ErrorCode.INVALID_REQUEST,
            f"{movement.kind.label.lower()} {reference} was made already, "
            f"of {posted.amount_micros:,} micro-units",
        )
    return posted


def _post(account: Account, movement: _Movement, reference: str) -> LedgerEntry:
    account.entries += 1
    account.balance_micros += movement.amount_micros
    account.save(update_fields=["balance_micros", "entries"])
    return LedgerEntry.objects.create(
        account=account,
        number=account.entries,
        kind=movement.kind,
        reference=reference,
        amount_micros=movement.amount_micros,
        balance_after_micros=account.balance_micros,
        description=movement.description,
        actor=movement.actor,
    )


def _usage_entry(account: Account, charge: Charge, now: datetime) -> _Entry:
    account.entries += 1
    account.balance_micros -= charge.cost_micros
    return _Entry(
        account_id=account.team_id,
        number=account.entries,
        kind=LedgerEntry.Kind.USAGE.value,
        reference=charge.request_id,
        amount_micros=-charge.cost_micros,
        balance_after_micros=account.balance_micros,
        created_at=now,
        description=charge.reason,
        request_id=charge.request_id,
        model=charge.model,
        lane=charge.lane,
        price_id=charge.price_id,
        input_tokens=charge.usage.prompt_tokens,
        cached_tokens=charge.usage.cached_tokens,
        cache_written_tokens=charge.usage.cache_written_tokens,
        output_tokens=charge.usage.output_tokens,
    )


def _count(days: dict[tuple[int, str, str, str], _DayUse], charge: Charge, day: date) -> None:
    """Add a charge to its day; `days` has one for each team, key, model and lane."""
    key = (charge.team_id, charge.key_id, charge.model, charge.lane)
    if key not in days:
        team_id, key_id, model, lane = key
        days[key] = _DayUse(team_id=team_id, key_id=key_id, day=day, model=model, lane=lane)
    use = days[key]
    use.requests += 1
    use.input_tokens += charge.usage.prompt_tokens
    use.cached_tokens += charge.usage.cached_tokens
    use.cache_written_tokens += charge.usage.cache_written_tokens
    use.output_tokens += charge.usage.output_tokens
    use.cost_micros += charge.cost_micros
