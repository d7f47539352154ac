"""The operator's admin. What it shows of the database is registered by `gateway.admin.tables`."""
