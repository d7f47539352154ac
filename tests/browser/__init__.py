"""What an operator sees and does, in a real browser against the real processes.

A package, so that its processes and its browser end with its last test.
"""
