"""Django's settings, all derived from `gateway.config`."""

from __future__ import annotations

from datetime import timedelta

from gateway.broker import broker_url
from gateway.config import BASE_DIR, load
from gateway.database import database_settings
from gateway.files.storage import storage_settings
from gateway.secret import secret_key
from gateway.supervise.layout import Layout

TANDEM = load()
# Where the embedded servers of this data directory answer is known whether they run or not, so
# that a command typed beside a running `serve` finds them.
EMBEDDED = Layout(TANDEM.DATA_DIR)
REDIS_URL = TANDEM.REDIS_URL or EMBEDDED.redis_url

SECRET_KEY = secret_key(TANDEM)
SECRET_KEY_FALLBACKS = TANDEM.SECRET_KEY_FALLBACKS
DEBUG = TANDEM.DEBUG
ALLOWED_HOSTS = TANDEM.ALLOWED_HOSTS
ROOT_URLCONF = "gateway.urls"
ASGI_APPLICATION = "gateway.asgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en-us"
FORMAT_MODULE_PATH = ["gateway.formats"]
STATIC_URL = "/static/"

INSTALLED_APPS = [
    "daphne",
    "channels",
    # Ahead of the admin, whose templates it replaces.
    "unfold.apps.BasicAppConfig",
    "unfold.contrib.filters",
    "gateway.apps.OperatorAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "axes",
    "csp",
    "django_otp",
    "django_otp.plugins.otp_static",
    "django_otp.plugins.otp_totp",
    "inference.apps.InferenceConfig",
    "jobs.apps.JobsConfig",
    "gateway.apps.GatewayConfig",
]

# These serve the admin and the pages only; `/v1` is answered before Django (see gateway.asgi).
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "gateway.content_policy.ContentPolicyMiddleware",
    # Ahead of the sessions, whose names are read from the database.
    "gateway.null_characters.NullCharacterMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django_otp.middleware.OTPMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    # The last: it answers for sign-ins that are refused.
    "axes.middleware.AxesMiddleware",
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

DATABASES = {"default": database_settings(TANDEM.DATABASE_URL or EMBEDDED.database_url)}

# What teams upload and batches write (see jobs.files). Every gateway and clerk must see the same.
STORAGES = {
    "default": storage_settings(TANDEM.FILE_STORAGE, TANDEM.FILE_STORAGE_OPTIONS, TANDEM.DATA_DIR),
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}

# A new API key is shown through a message: it must never reach the sessions' table.
MESSAGE_STORAGE = "django.contrib.messages.storage.cookie.CookieStorage"

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]

# Who signs in to the admin. Too many wrong passwords for a name, from one address, lock both for a
# while; each failure is kept, without what was typed.
AUTHENTICATION_BACKENDS = [
    "axes.backends.AxesStandaloneBackend",
    "django.contrib.auth.backends.ModelBackend",
]
AXES_FAILURE_LIMIT = 5
AXES_COOLOFF_TIME = timedelta(minutes=15)
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_CLIENT_IP_CALLABLE = "gateway.admin.sign_in.address_of"
AXES_LOCKOUT_CALLABLE = "gateway.admin.sign_in.locked_out"
AXES_RESET_ON_SUCCESS = True
AXES_SENSITIVE_PARAMETERS = ["username", "ip_address", "otp_token"]
AXES_ENABLE_ADMIN = False
AXES_VERBOSE = False
OTP_TOTP_ISSUER = "Tandem"

# Sessions are operators'. Where people come over HTTPS, nobody else reads their cookies on the way.
LOGIN_REDIRECT_URL = "/admin/"
SESSION_COOKIE_AGE = TANDEM.ADMIN_SESSION_S
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = TANDEM.HTTPS
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if TANDEM.HTTPS else None

# What the admin looks like; names of functions are looked up when a page is shown.
UNFOLD = {
    "SITE_TITLE": "Tandem",
    "SITE_HEADER": "Tandem",
    "SITE_SYMBOL": "pedal_bike",
    "SITE_FAVICONS": [
        {"rel": "icon", "type": "image/svg+xml", "href": f"{STATIC_URL}gateway/favicon.svg"}
    ],
    "STYLES": [f"{STATIC_URL}gateway/{name}.css" for name in ("labels", "tables")],
    "SCRIPTS": [f"{STATIC_URL}gateway/labels.js"],
    # Links and buttons have enough contrast by day (600) and by night (500).
    "COLORS": {
        "primary": {
            "50": "#eff7fe",
            "100": "#dcedfc",
            "200": "#bcdcf9",
            "300": "#9fcff7",
            "400": "#7cbcf5",
            "500": "#5aa9ee",
            "600": "#0b5fa5",
            "700": "#094f8a",
            "800": "#0a4272",
            "900": "#0c375d",
            "950": "#08243e",
        }
    },
    "SHOW_VIEW_ON_SITE": False,
    "SHOW_BACK_BUTTON": True,
    "ACCOUNT": {"navigation": "gateway.admin.site.account_links"},
    "SIDEBAR": {"navigation": "gateway.admin.site.navigation", "command_search": True},
    "COMMAND": {"search_callback": "gateway.admin.search.find_rows"},
}

# Tasks are short wake-ups; the truth is in the database. The time-outs are what lets a worker
# notice that its broker has gone and come back (Celery waits for ever by default).
CELERY_BROKER_URL = broker_url(REDIS_URL)
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
CELERY_BROKER_CHANNEL_ERROR_RETRY = True
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "global_keyprefix": f"{TANDEM.REDIS_PREFIX}:celery:",
    "socket_timeout": 15,
    "socket_connect_timeout": 5,
    "socket_keepalive": not REDIS_URL.startswith("unix:"),
    "health_check_interval": 10,
    "visibility_timeout": 3600,
}
CELERY_TASK_DEFAULT_QUEUE = "default"
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_SOFT_SHUTDOWN_TIMEOUT = 0
CELERY_TIMEZONE = TIME_ZONE
CELERY_BEAT_SCHEDULE = {
    "sweep-transport": {"task": "jobs.sweep_transport", "schedule": 60.0},
    "sweep-work": {"task": "jobs.sweep_work", "schedule": 10.0},
    "seal-audit": {"task": "jobs.seal_audit", "schedule": 60.0},
    "prune": {"task": "jobs.prune", "schedule": 3600.0},
}

# Where engines find work, and what the teams may spend whose work it is: the gateway's own to say,
# named here because neither engines nor jobs import it.
ENGINE_WORK_SOURCE = "jobs.work.source.DatabaseSource"
ENGINE_CREDIT = "jobs.work.round_credit.RoundCredit"
WORK_TERMS = "gateway.teams.spending_terms"

# Of the control API's document; everything else about that API is said in gateway.control.view.
REST_FRAMEWORK = {"DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema"}
SPECTACULAR_SETTINGS = {
    "TITLE": "Tandem's control API",
    "DESCRIPTION": "A team's activity, usage, billing and keys.",
    "VERSION": "v1",
    "OAS_VERSION": "3.1.0",
    "COMPONENT_SPLIT_PATCH": False,
    "POSTPROCESSING_HOOKS": [],
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {
            "class": "inference.redaction.RedactingFormatter",
            "format": "%(asctime)s %(levelname)s %(name)s: %(message)s",
        },
    },
    "handlers": {
        "console": {"class": "logging.StreamHandler", "formatter": "line"},
    },
    "root": {"handlers": ["console"], "level": TANDEM.LOG_LEVEL},
    "loggers": {
        # Errors that a client causes are answered, not logged.
        "django.request": {"level": "ERROR"},
        # They tell of every request with its whole URL, which may hold a caller's secret.
        "httpx": {"level": "WARNING"},
        "httpx2": {"level": "WARNING"},
        # They tell of every header of an answer.
        "httpcore": {"level": "WARNING"},
        "httpcore2": {"level": "WARNING"},
        # It tells of every sign-in; each is in the admin.
        "axes": {"level": "WARNING"},
        # It quotes what servers say that is no MCP; what went wrong is told by the session.
        "mcp": {"level": "CRITICAL"},
        # They tell of every prompt that goes to an upstream.
        "anthropic": {"level": "WARNING"},
        "openai": {"level": "WARNING"},
    },
}
