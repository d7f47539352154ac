"""The operator's own pages beside the lists of the admin: one request, the playground, one batch,
and what to do first.

They are views of the admin site, so that its login, its look and its security are theirs; each
checks the permission that it needs. Their templates extend `gateway/operator.html`, their scripts
are ES modules without a build step, and nothing that a caller wrote is ever shown as HTML.
"""
