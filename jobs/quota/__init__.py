"""What of a team must be decided before a request is let in: its limits, caps and credit.

It is kept in Redis, where one script decides and notes in one step, so that requests that arrive at
the same time on several gateways cannot spend the same credit. The database holds the truth.
"""
