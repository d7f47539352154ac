"""What the clerk does for batches: it reads their files, and writes their results."""

from __future__ import annotations

import logging
from uuid import UUID

from django.conf import settings

from gateway.batches.endpoints import rules_of
from gateway.batches.images import image_loading
from gateway.batches.openai.results import write_results
from gateway.batches.openai.validation import validate
from gateway.batches.rows import Terms
from gateway.cache_salt import cache_salt
from gateway.keys import find_principal
from inference.catalogue import load_catalogue
from jobs.batches import BatchError, alone_on, fail, finish
from jobs.models import Batch
from jobs.pricing import load_prices

logger = logging.getLogger(__name__)


def validate_batch(batch_id: UUID) -> None:
    """Make rows of a batch's input file, or end the batch; harmless when done already.

    Only OpenAI's batches come here: the others have their rows from the beginning.
    """
    with alone_on(batch_id) as alone:
        batch = Batch.objects.select_related("input_file").filter(id=batch_id).first()
        if not alone or batch is None or batch.status != Batch.Status.VALIDATING:
            return
        principal = find_principal(batch.key_id)
        if principal is None:
            fail(batch_id, [BatchError(code="invalid_api_key", message="The key was deleted.")])
            return
        terms = Terms(
            batch_id=str(batch_id),
            principal=principal,
            created_at=batch.created_at,
            deadline_at=batch.expires_at,
            catalogue=load_catalogue(),
            prices=load_prices(),
            cache_salt=cache_salt(batch.team_id),
            rules=rules_of(settings.TANDEM),
        )
        with image_loading(settings.TANDEM) as load_images:
            validate(batch, terms, load_images)


def finalize_batch(batch_id: UUID) -> None:
    """End a batch whose rows have all ended, with its files; harmless when done already."""
    with alone_on(batch_id) as alone:
        batch = Batch.objects.filter(id=batch_id).first()
        if not alone or batch is None or batch.status != Batch.Status.FINALIZING:
            return
        if batch.form == Batch.Form.OPENAI:
            write_results(batch)
        else:
            # Their results are read from the rows.
            finish(batch_id)
