"""The recorder: makes rows of the audit trail and entries of the ledger out of records.

One is active in the whole install. It reads the stream of records in batches, writes each batch in
one transaction and removes it afterwards, so that whatever is killed, nothing is lost; and
merging is such that records may come twice and in any order, so that nothing is counted twice.
"""
