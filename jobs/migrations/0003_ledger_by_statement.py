"""The ledger's check looks at what a statement adds as a whole, not at each entry.

For each entry it had to find the one before, and PostgreSQL did that by whatever index seemed best
when the table was still empty: it read the whole account for each entry until the first ANALYZE.
"""

from django.db import migrations

# Of the entries that one statement adds only an account's first has its forerunner in the table.
# The plan is made anew each time: it is used once for many entries, of a table that grows.
BY_STATEMENT = """
DROP TRIGGER ledger_follows ON jobs_ledgerentry;
DROP FUNCTION tandem_ledger_follows();

CREATE FUNCTION tandem_ledger_follows() RETURNS trigger LANGUAGE plpgsql
SET plan_cache_mode = force_custom_plan AS $$
DECLARE
    broken record;
BEGIN
    SELECT number, account_id INTO broken
    FROM (
        SELECT number, account_id, balance_after_micros - amount_micros AS due,
            lag(number) OVER in_order AS number_before,
            lag(balance_after_micros) OVER in_order AS balance_before
        FROM added
        WINDOW in_order AS (PARTITION BY account_id ORDER BY number)
    ) AS entry
    WHERE due IS DISTINCT FROM CASE
        WHEN number = 1 THEN 0
        WHEN number_before = number - 1 THEN balance_before
        ELSE (
            SELECT balance_after_micros FROM jobs_ledgerentry AS stored
            WHERE stored.account_id = entry.account_id AND stored.number = entry.number - 1
        )
    END
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'ledger entry % of account % does not follow from the one before',
            broken.number, broken.account_id USING ERRCODE = 'check_violation';
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER ledger_follows AFTER INSERT ON jobs_ledgerentry
REFERENCING NEW TABLE AS added
FOR EACH STATEMENT EXECUTE FUNCTION tandem_ledger_follows();
"""

BY_ENTRY = """
DROP TRIGGER ledger_follows ON jobs_ledgerentry;
DROP FUNCTION tandem_ledger_follows();

CREATE FUNCTION tandem_ledger_follows() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    before bigint;
BEGIN
    IF NEW.number = 1 THEN
        before := 0;
    ELSE
        SELECT balance_after_micros INTO before FROM jobs_ledgerentry
        WHERE account_id = NEW.account_id AND number = NEW.number - 1;
    END IF;
    IF before IS NULL OR NEW.balance_after_micros <> before + NEW.amount_micros THEN
        RAISE EXCEPTION 'ledger entry % of account % does not follow from the one before',
            NEW.number, NEW.account_id USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER ledger_follows BEFORE INSERT ON jobs_ledgerentry
FOR EACH ROW EXECUTE FUNCTION tandem_ledger_follows();
"""


class Migration(migrations.Migration):
    """One trigger instead of another."""

    dependencies = [("jobs", "0002_guards")]
    operations = [migrations.RunSQL(BY_STATEMENT, BY_ENTRY)]
