"""The gateway's side of limits, caps and balances: asks before a request, says what came of it."""
