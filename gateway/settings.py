"""Django's settings, all derived from `gateway.config`."""

from __future__ import annotations

import dj_database_url

from gateway.config import BASE_DIR, load
from gateway.secret import secret_key

TANDEM = load()

SECRET_KEY = secret_key(TANDEM)
DEBUG = TANDEM.DEBUG
ALLOWED_HOSTS = TANDEM.ALLOWED_HOSTS
ROOT_URLCONF = "gateway.urls"
ASGI_APPLICATION = "gateway.asgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en-us"
STATIC_URL = "/static/"

INSTALLED_APPS = [
    "daphne",
    "channels",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "inference.apps.InferenceConfig",
    "jobs.apps.JobsConfig",
    "gateway.apps.GatewayConfig",
]

# These serve the admin and the pages only; `/v1` is answered before Django (see gateway.asgi).
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = DEBUG
APPEND_SLASH = True

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    }
]

# Without DATABASE_URL only commands that need no database run by hand: `serve` starts the
# embedded server and hands its address down to every process it starts.
DATABASES = {
    "default": dj_database_url.parse(
        TANDEM.DATABASE_URL or "postgresql://localhost/tandem",
        conn_max_age=60,
        conn_health_checks=True,
    )
}
DATABASES["default"].setdefault("OPTIONS", {}).update(connect_timeout=5)

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"},
    },
    "handlers": {
        "console": {"class": "logging.StreamHandler", "formatter": "line"},
    },
    "root": {"handlers": ["console"], "level": TANDEM.LOG_LEVEL},
    "loggers": {
        # Errors that a client causes are answered, not logged.
        "django.request": {"level": "ERROR"},
    },
}
