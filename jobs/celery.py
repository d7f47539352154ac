"""The Celery application. Its settings are the CELERY_ ones of Django's settings."""

from __future__ import annotations

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")

app = Celery("jobs")
app.config_from_object("django.conf:settings", namespace="CELERY")
# The gateway's tasks are sent by name: jobs do not import it.
app.autodiscover_tasks(["jobs", "gateway"])
# Named, not imported: Django is not set up yet when Celery reads this.
app.steps["worker"].update(("inference.engine.step:EngineStep", "jobs.recorder.step:RecorderStep"))
