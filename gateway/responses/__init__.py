"""Responses that last: kept, made in the background, read again, followed, cancelled, listed."""
