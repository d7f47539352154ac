"""`/v1/files`, as OpenAI's clients call it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial
from typing import IO, ClassVar
from uuid import UUID

import msgspec
from django.utils import timezone
from django.utils.http import content_disposition_header

from gateway.batches.openai.lines import count_requests
from gateway.errors import OPENAI, Envelope
from gateway.files.form import MAX_FILE_BYTES, read_form
from gateway.files.names import file_name, parse_file_name
from gateway.files.ranges import Part, UnsatisfiableError, find_part
from gateway.files.wire import Upload, decode_list, decode_upload, show_file, show_list
from gateway.http.body import check_content_encoding
from gateway.http.consumer import ApiConsumer
from gateway.http.pace import Pace
from gateway.http.request import ApiRequest
from gateway.http.upload import UploadConsumer
from gateway.models import Scope
from inference.errors import ErrorCode, TandemError
from jobs import files
from jobs.files import NewFile, Spool
from jobs.models import StoredFile

MAX_BATCH_BYTES = 200 * 1024 * 1024
# Boundaries, headers and the other fields.
_FORM_BYTES = 1024 * 1024
_PIECE_BYTES = 256 * 1024
_LARGE_BYTES = 1024 * 1024


class _FilesConsumer(ApiConsumer):
    """What all of them share. A file is its team's: others are told that there is none."""

    scope_needed: ClassVar[str | None] = Scope.BATCHES
    envelope: ClassVar[Envelope] = OPENAI

    @property
    def file_id(self) -> UUID:
        """The id in the path. Raises NOT_FOUND."""
        text = self.arguments["file_id"]
        file_id = parse_file_name(text)
        if file_id is None:
            raise TandemError(ErrorCode.NOT_FOUND, f"No such File object: {text[:100]}", param="id")
        return file_id

    async def find(self) -> StoredFile:
        """Return the file that the path names. Raises NOT_FOUND."""
        return await self.services.database.run(
            partial(files.find, self.file_id, self.principal.team_id)
        )


class UploadFileConsumer(_FilesConsumer, UploadConsumer):
    """`POST /v1/files`."""

    methods = ("POST",)

    @property
    def max_body_bytes(self) -> int:
        """The form's size."""
        return MAX_FILE_BYTES + _FORM_BYTES

    async def handle(self, request: ApiRequest) -> None:
        """Write the file aside, look at it, and store it."""
        check_content_encoding(request.header(b"content-encoding"))
        # A large one takes seconds: few at once, and nobody else's calls wait for them.
        is_large = self._size > _LARGE_BYTES
        threads = self.services.batch_threads if is_large else self.services.database
        file = await threads.run(self._store)
        await self.respond_json(msgspec.json.encode(show_file(file)))

    def _store(self) -> StoredFile:
        with Spool() as spool:
            upload, lines = self._read(spool)
            expires_at = None
            if upload.expires_after_s is not None:
                expires_at = timezone.now() + timedelta(seconds=upload.expires_after_s)
            new = NewFile(
                id=UUID(self.request.id),
                team_id=self.principal.team_id,
                key_id=UUID(self.principal.key_id),
                filename=upload.filename,
                purpose=upload.purpose,
                expires_at=expires_at,
                lines=lines,
            )
            return files.save(spool, new)

    def _read(self, spool: Spool) -> tuple[Upload, int | None]:
        """Return what the form says, and how many requests a batch's input has."""
        upload = decode_upload(read_form(self.request.header(b"content-type"), self.upload, spool))
        if upload.purpose != StoredFile.Purpose.BATCH:
            return upload, None
        if spool.size_bytes > MAX_BATCH_BYTES:
            raise TandemError(
                ErrorCode.TOO_LARGE,
                f"the file has {spool.size_bytes} bytes, more than the maximum of "
                f"{MAX_BATCH_BYTES} for the purpose batch",
                param="file",
            )
        return upload, count_requests(spool.read_back())


class ListFilesConsumer(_FilesConsumer):
    """`GET /v1/files`."""

    async def handle(self, request: ApiRequest) -> None:
        """List the team's files, newest first unless it is asked otherwise."""
        query = decode_list(request.query, self.principal.team_id)
        found, has_more = await self.services.database.run(partial(files.page, query))
        await self.respond_json(msgspec.json.encode(show_list(found, has_more=has_more)))


class FileConsumer(_FilesConsumer):
    """`GET` and `DELETE /v1/files/{id}`."""

    methods = ("GET", "HEAD", "DELETE")

    async def handle(self, request: ApiRequest) -> None:
        """Show the file, or delete it."""
        file = await self.find()
        if request.method != "DELETE":
            await self.respond_json(msgspec.json.encode(show_file(file)))
            return
        await self.services.database.run(partial(files.delete, file.id, self.principal.team_id))
        gone = {"id": file_name(file.id), "object": "file", "deleted": True}
        await self.respond_json(msgspec.json.encode(gone))


class FileContentConsumer(_FilesConsumer):
    """`GET /v1/files/{id}/content`: the bytes, or a range of them."""

    async def handle(self, request: ApiRequest) -> None:
        """Send the file as fast as the client takes it."""
        file = await self.find()
        try:
            part = self._part(file)
        except UnsatisfiableError:
            await self._refuse_range(file)
            return
        start, end = part or (0, file.size_bytes)
        opened = await asyncio.to_thread(files.open_bytes, file)
        try:
            headers = [
                (b"content-type", b"application/octet-stream"),
                (b"content-disposition", _disposition(file)),
                (b"content-length", b"%d" % (end - start)),
                (b"accept-ranges", b"bytes"),
                (b"etag", _etag(file)),
                (b"x-content-type-options", b"nosniff"),
                self.identity,
            ]
            if part is not None:
                content_range = b"bytes %d-%d/%d" % (start, end - 1, file.size_bytes)
                headers.append((b"content-range", content_range))
            await self.start(200 if part is None else 206, headers)
            await self._send(opened, Part(start, end))
        finally:
            opened.close()

    def _part(self, file: StoredFile) -> Part | None:
        if_range = self.request.header(b"if-range")
        if if_range is not None and if_range.strip() != _etag(file):
            return None
        return find_part(self.request.header(b"range"), file.size_bytes)

    async def _send(self, opened: IO[bytes], part: Part) -> None:
        left = 0 if self.request.method == "HEAD" else part.end - part.start
        if left:
            await asyncio.to_thread(opened.seek, part.start)
        with Pace(self.base_send, self.services.config.REQUEST_TIMEOUT_S) as pace:
            while left:
                piece = await asyncio.to_thread(opened.read, min(left, _PIECE_BYTES))
                if not piece or not await pace.wait():
                    # Too few bytes for the length that was promised: the client will notice.
                    return
                left -= len(piece)
                await self.write(piece)
        await self.write(b"", more=False)

    async def _refuse_range(self, file: StoredFile) -> None:
        error = TandemError(
            ErrorCode.INVALID_REQUEST,
            f"the file has {file.size_bytes} bytes, and none of those that `Range` asks for",
        )
        headers = [
            (b"content-type", b"application/json"),
            (b"content-range", b"bytes */%d" % file.size_bytes),
            self.identity,
        ]
        body = self.envelope.body(error, self.request.public_id)
        await self.respond(416, body, headers)


def _etag(file: StoredFile) -> bytes:
    return b'"%s"' % bytes(file.digest).hex().encode()


def _disposition(file: StoredFile) -> bytes:
    value = content_disposition_header(True, file.filename) or "attachment"
    return value.encode("ascii", "replace")
