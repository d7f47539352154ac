"""What the dashboard shows, as it happens: one look a second for all who watch, none for nobody.

Sources look at Redis and at sums that the clerk keeps in the database, never at requests one by
one; each makes parts, small pieces of JSON under names of their own. Watchers are told all parts
first and then those that have changed. Nothing here uses the memory of a gateway that serves the
API: a process that serves only the admin shows the same.
"""
