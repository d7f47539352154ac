"""Every setting: its name, type, default and meaning. The only reader of the environment.

A setting NAME is read from the environment variable NAME, or, for every setting, from the file
that NAME_FILE points to (as container secrets are mounted). An empty variable counts as not set.
`docs/configuration.md` describes each; a test holds the two together.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict
from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict
from redis import ConnectionPool

from inference.addresses import parse_allowed

BASE_DIR = Path(__file__).resolve().parent.parent
LOCAL_STORAGE = "django.core.files.storage.FileSystemStorage"


class ConfigError(Exception):
    """A setting has a bad value; the message names each one and says what is wrong with it."""


class Config(BaseSettings):
    """The settings of one process. Those that hold a secret are left out of its `repr`."""

    model_config = SettingsConfigDict(
        case_sensitive=True,
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
        allow_inf_nan=False,
    )

    HOST: str = Field("127.0.0.1", description="Address that the gateway listens on.")
    PORT: int = Field(8080, ge=1, le=65535, description="Port that the gateway listens on.")
    DATA_DIR: Path = Field(
        BASE_DIR / "var",
        description="Folder for models, embedded servers, secrets and logs.",
    )
    SECRET_KEY: str = Field(
        "",
        repr=False,
        description="Signs sessions and separates teams' prefix caches. Empty: one is made and "
        "kept in the data directory.",
    )
    SECRET_KEY_FALLBACKS: Annotated[list[str], NoDecode] = Field(
        [],
        repr=False,
        description="Earlier secret keys, separated by commas, newest first: what they signed "
        "stays good.",
    )
    DEBUG: bool = Field(False, description="Django's debug pages. Never on a public address.")
    ALLOWED_HOSTS: Annotated[list[str], NoDecode] = Field(
        ["*"], description="Host names, separated by commas, that the gateway answers to."
    )
    DATABASE_URL: str = Field(
        "",
        repr=False,
        description="PostgreSQL, as postgresql://user:password@host/name. Empty: embedded.",
    )
    REDIS_URL: str = Field(
        "",
        repr=False,
        description="A Redis-protocol server, as redis://host:6379/0. Empty: embedded.",
    )
    REDIS_PREFIX: str = Field(
        "tandem", min_length=1, description="Prefix of every key, so that installs can share one."
    )
    GATEWAY_ROLE: Literal["all", "api", "admin"] = Field(
        "all", description="What a gateway process answers: the API, the admin, or both."
    )
    HTTPS: bool = Field(
        False,
        description="Whether people reach the gateway over HTTPS, through a proxy that sets "
        "X-Forwarded-Proto. The admin's cookies then go over nothing else.",
    )
    ADMIN_TWO_FACTOR: bool = Field(
        False,
        description="Whether every operator must have a second factor to sign in to the admin: a "
        "code from a phone.",
    )
    ADMIN_SESSION_S: int = Field(
        12 * 60 * 60, ge=60, description="How long an operator stays signed in."
    )
    GATEWAY_PROCESSES: int = Field(
        1, ge=1, le=64, description="Gateway processes that serve starts on one listening socket."
    )
    REQUEST_TIMEOUT_S: float = Field(
        600, gt=0, description="Longest time from admission to the end of a realtime request."
    )
    FLEX_WAIT_S: float = Field(
        60, gt=0, description="How long a flex request waits for a place in an engine before 429."
    )
    PING_INTERVAL_S: float = Field(
        10, gt=0, description="A stream that has been quiet for so long gets a ping."
    )
    MAX_BODY_BYTES: int = Field(
        32 * 1024 * 1024, ge=1024, description="Largest request body; larger ones get 413."
    )
    MAX_BATCH_BODY_BYTES: int = Field(
        256 * 1024 * 1024,
        ge=1024,
        description="Largest body that creates a batch whose requests stand in it.",
    )
    UNKNOWN_FIELDS: Literal["ignore", "reject"] = Field(
        "ignore",
        description="Unknown top-level request fields: ignored and listed in a response header, "
        "or refused with 400.",
    )
    ENQUEUE_WAIT_S: float = Field(
        5, ge=0, description="How long a new request waits for Redis to come back before 503."
    )
    HEARTBEAT_S: float = Field(
        0.5, gt=0, description="How often engines and gateways say that they are alive."
    )
    DEAD_AFTER_S: float = Field(
        3.5, gt=0, description="An engine or gateway silent for so long counts as dead."
    )
    STALL_AFTER_S: float = Field(
        30, gt=0, description="An engine with work that makes no progress for so long is restarted."
    )
    ENGINE_MODELS: Annotated[list[str], NoDecode] = Field(
        [],
        description="Catalogue ids, separated by commas, that this engine worker serves. Empty: "
        "this process owns no engine.",
    )
    STREAM_BUFFER_BYTES: int = Field(
        4 * 1024 * 1024,
        ge=1024,
        description="Output that may wait in memory for a client that reads too slowly; beyond "
        "it the stream is ended and the request aborted.",
    )
    PROMETHEUS_MULTIPROC_DIR: str = Field(
        "",
        description="Empty folder through which several gateway processes add up their metrics. "
        "Without it each answers for itself.",
    )
    LIMITS_FAIL_OPEN: bool = Field(
        False,
        description="Whether requests are let in while balances and limits cannot be read.",
    )
    BODY_RETENTION_DAYS: int = Field(
        30, ge=0, description="How long what requests say and what is answered is kept; 0: never."
    )
    BODY_MAX_BYTES: int = Field(
        1024 * 1024, ge=0, description="Larger bodies and answers are not kept, only their digest."
    )
    RESPONSE_RETENTION_DAYS: int = Field(
        30, ge=1, description="How long stored responses can be read again."
    )
    AUDIT_RETENTION_DAYS: int = Field(
        400, ge=1, description="How long the rows of the audit trail are kept."
    )
    SETTLE_AFTER_S: float = Field(
        60,
        gt=0,
        description="How long a request waits for the records of processes that may have died.",
    )
    IMAGE_FETCH: bool = Field(
        True, description="Whether images are fetched from URLs. Base64 is taken either way."
    )
    IMAGE_HOSTS_ALLOWED: Annotated[list[str], NoDecode] = Field(
        [],
        description="Hosts, addresses and networks, separated by commas, that images are fetched "
        "from although they are private, on any port.",
    )
    IMAGE_FETCH_TIMEOUT_S: float = Field(
        5, gt=0, description="Longest time to fetch one image, redirects included."
    )
    IMAGE_FETCH_CONCURRENCY: int = Field(
        16, ge=1, le=256, description="Images that one gateway process fetches at the same time."
    )
    IMAGE_MAX_BYTES: int = Field(
        10 * 1024 * 1024, ge=1024, description="Largest image file; larger ones get 400."
    )
    IMAGE_MAX_PIXELS: int = Field(
        50_000_000, ge=1, description="Largest image in pixels, width times height."
    )
    IMAGE_MAX_COUNT: int = Field(
        100, ge=0, description="Most images in one request, those in tool results included."
    )
    IMAGE_MAX_TOTAL_BYTES: int = Field(
        32 * 1024 * 1024, ge=1024, description="Largest sum of the image files of one request."
    )
    MCP_SERVERS_IN_REQUESTS: bool = Field(
        False,
        description="Whether callers may bring MCP servers of their own, by URL, whose tools are "
        "run for them.",
    )
    MCP_HOSTS_ALLOWED: Annotated[list[str], NoDecode] = Field(
        [],
        description="Hosts, addresses and networks, separated by commas, that such servers may be "
        "at although they are private, on any port.",
    )
    FILE_STORAGE: str = Field(
        LOCAL_STORAGE,
        description="Class of the Django storage that keeps uploaded files and batches' results.",
    )
    FILE_STORAGE_OPTIONS: str = Field(
        "",
        repr=False,
        description="Options of that class, as a JSON object. Empty: none; files on a local disk "
        "go below the data directory.",
    )
    LOG_LEVEL: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        "INFO", description="Least severe log lines that are written."
    )

    @model_validator(mode="before")
    @classmethod
    def _read_files(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Take NAME from the file that NAME_FILE names."""
        found = {}
        for name in cls.model_fields:
            path = os.environ.get(f"{name}_FILE")
            if not path:
                continue
            if name in values:
                raise ValueError(f"set {name} or {name}_FILE, not both")
            found[name] = _read_file(f"{name}_FILE", Path(path))
        return values | found

    @field_validator(
        *("ALLOWED_HOSTS", "ENGINE_MODELS", "SECRET_KEY_FALLBACKS"),
        *("IMAGE_HOSTS_ALLOWED", "MCP_HOSTS_ALLOWED"),
        mode="before",
    )
    @classmethod
    def _split(cls, value: Any) -> Any:
        if isinstance(value, str):
            return [item.strip() for item in value.split(",") if item.strip()]
        return value

    @field_validator("IMAGE_HOSTS_ALLOWED", "MCP_HOSTS_ALLOWED")
    @classmethod
    def _only_hosts(cls, value: list[str]) -> list[str]:
        for entry in value:
            parse_allowed(entry)
        return value

    @field_validator("FILE_STORAGE_OPTIONS")
    @classmethod
    def _only_an_object(cls, value: str) -> str:
        # What the parser says is not repeated: options hold passwords.
        try:
            decoded = msgspec.json.decode(value) if value else {}
        except (msgspec.DecodeError, UnicodeEncodeError):
            decoded = None
        if not isinstance(decoded, dict):
            raise ValueError("must be a JSON object")
        return value

    @field_validator("DATA_DIR")
    @classmethod
    def _resolve(cls, value: Path) -> Path:
        return value.expanduser().resolve()

    @field_validator("DATABASE_URL")
    @classmethod
    def _only_postgresql(cls, value: str) -> str:
        if not value:
            return value
        if not value.startswith(("postgresql://", "postgres://")):
            raise ValueError("must be a postgresql:// URL; Tandem supports no other database")
        # What the parser says is not repeated: it quotes pieces of the URL, and so the password.
        try:
            parts = conninfo_to_dict(value)
        except ProgrammingError:
            parts = {}
        ports = str(parts.get("port", "5432")).split(",")
        if not parts.get("dbname") or not all(port.isdecimal() for port in ports):
            raise ValueError(
                "must have the form postgresql://user:password@host:port/name, "
                "with special characters in the password percent-encoded"
            )
        return value

    @field_validator("REDIS_URL")
    @classmethod
    def _only_redis(cls, value: str) -> str:
        if not value:
            return value
        try:
            ConnectionPool.from_url(value)
        except ValueError:
            raise ValueError(
                "must have the form redis://user:password@host:port/0, rediss://... or "
                "unix:///path, with special characters in the password percent-encoded"
            ) from None
        return value

    @model_validator(mode="after")
    def _heartbeats_fit(self) -> Config:
        if self.DEAD_AFTER_S < 3 * self.HEARTBEAT_S:
            raise ValueError("DEAD_AFTER_S must be at least three times HEARTBEAT_S")
        return self


def _read_file(variable: str, path: Path) -> str:
    """Return the file's text, bare of white space around it. The error never quotes the file."""
    try:
        value = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ValueError(f"{variable}: cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{variable}: {path} is not a text file in UTF-8") from None
    if not value:
        raise ValueError(f"{variable}: {path} is empty")
    return value


@cache
def load() -> Config:
    """Read the environment once. Raises `ConfigError` naming every bad setting."""
    try:
        return Config()
    except ValidationError as error:
        lines = [
            f"  {'.'.join(str(part) for part in problem['loc']) or 'settings'}: "
            f"{problem['msg'].removeprefix('Value error, ')}"
            for problem in error.errors()
        ]
        raise ConfigError("Tandem cannot start, a setting is wrong:\n" + "\n".join(lines)) from None
