"""Work that lasts: rows of batches and background responses, from their asking to their end.

It is in the database from the beginning to the end, and engines take it from there; a message says
only that there is some. What ends is written with what it costs in one transaction, so that no
process that is killed at any moment can lose a piece of work, or bill it twice.
"""
