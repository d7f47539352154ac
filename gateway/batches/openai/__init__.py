"""OpenAI's batches: from a file of requests to a file of answers.

`wire` says what may be asked, `creation` stores a batch, `lines` and `validation` read its file
into rows, `results` writes its output and error files, `show` is what clients see of it.
"""
