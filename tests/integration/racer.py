"""A gateway process in small: clients that ask for one team's credit until they are refused.

Called with Redis' URL, a prefix, the balance, the hold and the number of clients and of requests of
each; says "ready", waits for a line, and says how many requests were let in.
"""

from __future__ import annotations

import asyncio
import os
import sys
import uuid

import django


async def race(redis_url: str, prefix: str, *numbers: str) -> int:
    # Only now are Django's models there to be imported.
    from gateway.accounting.limiter import Limiter
    from gateway.accounting.refusals import LimitError
    from inference.errors import ErrorCode
    from inference.transport.connection import connect
    from inference.transport.courier import Courier
    from jobs.ledger import AccountState
    from jobs.quota.claims import Claim, Spend

    balance, hold, clients, requests = map(int, numbers)
    state = AccountState(
        version=1,
        balance_micros=balance,
        day="2026-08-07",
        day_spent_micros=0,
        month="2026-08",
        month_spent_micros=0,
    )

    async def ask(limiter: Limiter) -> int:
        let_in = 0
        for _ in range(requests):
            claim = Claim(
                request_id=str(uuid.uuid4()),
                team_id=1,
                key_id="key",
                input_tokens=1,
                lease_ms=60_000,
                spend=Spend(hold_micros=hold, prepaid=True),
            )
            try:
                await limiter.admit(claim)
            except LimitError as error:
                if error.code is not ErrorCode.BALANCE_EXHAUSTED:
                    raise
            else:
                let_in += 1
                limiter.release(claim, 1, 1)
        return let_in

    async with connect(redis_url) as client:
        limiter = Limiter(
            Courier(client), prefix, fail_open=False, read_state=lambda _: state, wait_s=20.0
        )
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.readline)
        let_in = await asyncio.gather(*(ask(limiter) for _ in range(clients)))
        await limiter.stop()
    return sum(let_in)


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
    django.setup()
    sys.stdout.write(f"{asyncio.run(race(*sys.argv[1:]))}\n")
