"""What the database itself refuses, whoever asks: to rewrite the ledger or the sealed past."""

from django.db import migrations

LEDGER = """
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

CREATE FUNCTION tandem_ledger_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the ledger is append-only: correct it by an adjustment'
        USING ERRCODE = 'check_violation';
END $$;

CREATE TRIGGER ledger_is_append_only BEFORE UPDATE OR DELETE ON jobs_ledgerentry
FOR EACH ROW EXECUTE FUNCTION tandem_ledger_is_append_only();
"""

NO_LEDGER = """
DROP TRIGGER ledger_is_append_only ON jobs_ledgerentry;
DROP FUNCTION tandem_ledger_is_append_only();
DROP TRIGGER ledger_follows ON jobs_ledgerentry;
DROP FUNCTION tandem_ledger_follows();
"""

# Retention says who it is by a setting of its own transaction: SET LOCAL tandem.pruning = 'on'.
AUDIT = """
CREATE FUNCTION tandem_audit_is_sealed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND OLD.seal_id IS NOT NULL THEN
        RAISE EXCEPTION 'request % is sealed: the audit trail is never rewritten', OLD.id
            USING ERRCODE = 'check_violation';
    END IF;
    IF TG_OP = 'DELETE' AND current_setting('tandem.pruning', true) IS DISTINCT FROM 'on' THEN
        RAISE EXCEPTION 'the audit trail is pruned by its retention alone'
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN COALESCE(NEW, OLD);
END $$;

CREATE TRIGGER audit_is_sealed BEFORE UPDATE OR DELETE ON jobs_requestrecord
FOR EACH ROW EXECUTE FUNCTION tandem_audit_is_sealed();

CREATE FUNCTION tandem_seal_is_kept() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE'
        OR current_setting('tandem.pruning', true) IS DISTINCT FROM 'on'
        OR (NEW.number, NEW.created_at, NEW.rows, NEW.rows_digest, NEW.digest)
            IS DISTINCT FROM (OLD.number, OLD.created_at, OLD.rows, OLD.rows_digest, OLD.digest)
    THEN
        RAISE EXCEPTION 'seal % of the audit trail stays as it is', OLD.number
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER seal_is_kept BEFORE UPDATE OR DELETE ON jobs_auditseal
FOR EACH ROW EXECUTE FUNCTION tandem_seal_is_kept();
"""

NO_AUDIT = """
DROP TRIGGER seal_is_kept ON jobs_auditseal;
DROP FUNCTION tandem_seal_is_kept();
DROP TRIGGER audit_is_sealed ON jobs_requestrecord;
DROP FUNCTION tandem_audit_is_sealed();
"""


class Migration(migrations.Migration):
    """Triggers, in PostgreSQL's own language."""

    dependencies = [("jobs", "0001_initial")]
    operations = [
        migrations.RunSQL(LEDGER, NO_LEDGER),
        migrations.RunSQL(AUDIT, NO_AUDIT),
    ]
