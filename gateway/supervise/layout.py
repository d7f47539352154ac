"""Where an install keeps its embedded servers, and the addresses they answer on."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

# A Unix socket's path has at most 107 bytes on Linux; the longest name that is appended here is
# PostgreSQL's lock file.
_LONGEST_SOCKET_FOLDER = 107 - len("/postgres/.s.PGSQL.5432.lock")


@dataclass(frozen=True, slots=True)
class Layout:
    """The folders below one data directory."""

    data_dir: Path

    @property
    def run(self) -> Path:
        """Lock, sockets and the process manager's files; nothing here outlives a run."""
        return self.data_dir / "run"

    @property
    def logs(self) -> Path:
        """One log per process."""
        return self.data_dir / "logs"

    @property
    def models(self) -> Path:
        """One folder of weights per model."""
        return self.data_dir / "models"

    @property
    def postgres(self) -> Path:
        """The embedded PostgreSQL's cluster."""
        return self.data_dir / "postgres"

    @property
    def valkey(self) -> Path:
        """The embedded Valkey's append-only file."""
        return self.data_dir / "valkey"

    @property
    def sockets(self) -> Path:
        """The folder of every Unix socket: `run`, or a short stand-in where that is too long."""
        if len(os.fsencode(self.run)) <= _LONGEST_SOCKET_FOLDER:
            return self.run
        name = hashlib.sha256(os.fsencode(self.data_dir)).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"tandem-{os.geteuid()}-{name}"

    @property
    def postgres_sockets(self) -> Path:
        """PostgreSQL's own socket folder. Its mode is the access control: see `postgres`."""
        return self.sockets / "postgres"

    @property
    def valkey_socket(self) -> Path:
        """Valkey's socket, open to its owner alone."""
        return self.sockets / "valkey.sock"

    @property
    def database_url(self) -> str:
        """The embedded PostgreSQL's address."""
        return f"postgresql://tandem@{quote(str(self.postgres_sockets), safe='')}/tandem"

    @property
    def redis_url(self) -> str:
        """The embedded Valkey's address."""
        return f"unix://{quote(str(self.valkey_socket))}"

    def create(self) -> None:
        """Make the folders. Raises `PermissionError` if another user holds the sockets' folder."""
        for folder in (self.data_dir, self.run, self.logs, self.models, self.sockets):
            folder.mkdir(parents=True, exist_ok=True)
        # Its name in the shared temporary folder can be guessed, so somebody may have been first.
        held = self.sockets.lstat()
        if not stat.S_ISDIR(held.st_mode) or held.st_uid != os.geteuid():
            raise PermissionError(f"{self.sockets} belongs to another user")
        # Others may pass through (PostgreSQL, where it runs as a user of its own), not look.
        self.sockets.chmod(0o711)
        self.logs.chmod(0o700)
