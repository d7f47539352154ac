"""Batches from the caller's side, through OpenAI's SDK: submitted, watched, and their results read.

It knows neither Django nor a setting, only the gateway's public API: the gateway may be anywhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Any, Protocol

import msgspec
import openai
from openai.types import Batch
from tqdm.utils import CallbackIOWrapper

KEY_VARIABLE = "TANDEM_API_KEY"
URL_VARIABLE = "TANDEM_BASE_URL"

_TERMINAL = frozenset({"completed", "failed", "expired", "cancelled"})
_CHUNK_BYTES = 64 * 1024
_MICROS = 1_000_000


class BatchClientError(Exception):
    """What was asked cannot be done; the message says why, and what to do."""


class Bar(Protocol):
    """A progress bar: `tqdm`'s."""

    n: float
    total: float | None

    def update(self, n: float = 1) -> object:
        """Add to it."""

    def refresh(self) -> object:
        """Draw it again."""

    def set_postfix_str(self, s: str = "", refresh: bool = True) -> object:
        """Say something behind it."""


MakeBar = Callable[..., AbstractContextManager[Bar]]


class BatchClient:
    """One gateway, and a key for it. Every method raises `BatchClientError`."""

    def __init__(self, url: str, key: str) -> None:
        if not key:
            raise BatchClientError(
                f"no API key: set {KEY_VARIABLE} to one that `manage.py create_api_key NAME` "
                "prints where Tandem runs"
            )
        base = url.rstrip("/")
        self._openai = openai.OpenAI(
            base_url=base if base.endswith("/v1") else f"{base}/v1", api_key=key
        )
        self._url = base

    def submit(self, path: Path, endpoint: str | None, make_bar: MakeBar) -> Batch:
        """Upload a file of requests and make a batch of it.

        Without an `endpoint`, it is the `url` of the file's first line.
        """
        endpoint = endpoint or first_url(path)
        size = path.stat().st_size
        with (
            self._asking(),
            make_bar(total=size, unit="B", unit_scale=True, desc="uploading") as bar,
            path.open("rb") as file,
        ):
            name = path.name if path.suffix == ".jsonl" else f"{path.name}.jsonl"
            uploaded = self._openai.files.create(
                file=(name, CallbackIOWrapper(bar.update, file, "read")),
                purpose="batch",
            )
            return self._openai.batches.create(
                input_file_id=uploaded.id,
                endpoint=endpoint,  # type: ignore[arg-type]
                completion_window="24h",
            )

    def watch(self, batch_id: str, make_bar: MakeBar, every_s: float) -> Batch:
        """Show a batch's progress until it has ended, and return it."""
        with self._asking(), make_bar(unit="row", desc="running") as bar:
            while True:
                batch = self._openai.batches.retrieve(batch_id)
                counts = batch.request_counts
                if counts is not None:
                    bar.total = counts.total or None
                    bar.n = counts.completed + counts.failed
                    bar.set_postfix_str(summary(batch), refresh=False)
                    bar.refresh()
                if batch.status in _TERMINAL:
                    return batch
                time.sleep(every_s)

    def cancel(self, batch_id: str) -> Batch:
        """Cancel a batch: what runs ends, what waits does not begin."""
        with self._asking():
            return self._openai.batches.cancel(batch_id)

    def ended(self, batch_id: str) -> Batch:
        """Return a batch whose results can be read; refuses any other."""
        with self._asking():
            batch = self._openai.batches.retrieve(batch_id)
        if batch.status not in _TERMINAL:
            raise BatchClientError(
                f"batch {batch_id} is {batch.status}: `manage.py batch watch {batch_id}` "
                "shows when it has ended"
            )
        if not (batch.output_file_id or batch.error_file_id):
            raise BatchClientError(f"batch {batch_id} is {batch.status}: it has no results")
        return batch

    def download(self, file_id: str, sink: IO[bytes], make_bar: MakeBar) -> int:
        """Write a file as it comes, and return how many lines it has."""
        with self._asking():
            return self._download(file_id, sink, make_bar)

    def _download(self, file_id: str, sink: IO[bytes], make_bar: MakeBar) -> int:
        lines = 0
        size = self._openai.files.retrieve(file_id).bytes
        with (
            make_bar(total=size, unit="B", unit_scale=True, desc="downloading") as bar,
            self._openai.files.with_streaming_response.content(file_id) as content,
        ):
            for chunk in content.iter_bytes(_CHUNK_BYTES):
                sink.write(chunk)
                lines += chunk.count(b"\n")
                bar.update(len(chunk))
        return lines

    def _asking(self) -> AbstractContextManager[None]:
        return _Explained(self._url)


class _Explained(AbstractContextManager[None]):
    """Turns what the SDK raises into words that help."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        match error:
            case openai.AuthenticationError():
                raise BatchClientError(f"{self._url} does not know this API key") from None
            case openai.APIStatusError():
                raise BatchClientError(f"{self._url} answers {error.status_code}: {said(error)}")
            case openai.APIConnectionError():
                raise BatchClientError(
                    f"{self._url} cannot be reached: is Tandem running there? ({error.__cause__})"
                ) from None


class _Line(msgspec.Struct):
    url: str


def first_url(path: Path) -> str:
    """Return the endpoint that the file's first request is for."""
    with path.open("rb") as file:
        for line in file:
            text = line.removeprefix(b"\xef\xbb\xbf").strip()
            if text:
                try:
                    return msgspec.json.decode(text, type=_Line).url
                except msgspec.MsgspecError as error:
                    raise BatchClientError(
                        f"{path}: the first line is no request ({error}); it has the form "
                        '{"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", '
                        '"body": {...}}'
                    ) from None
    raise BatchClientError(f"{path} is empty")


def said(error: openai.APIStatusError) -> str:
    """Return the gateway's own words."""
    body = error.body
    return str(body["message"]) if isinstance(body, dict) and "message" in body else str(error)


def summary(batch: Batch) -> str:
    """Return in a few words how a batch goes: its failures, tokens and cost so far."""
    parts: list[str] = [batch.status]
    if batch.request_counts and batch.request_counts.failed:
        parts.append(f"{batch.request_counts.failed} failed")
    if batch.usage is not None and batch.usage.total_tokens:
        parts.append(f"{batch.usage.input_tokens:,}+{batch.usage.output_tokens:,} tokens")
    cost_micros = (batch.model_extra or {}).get("cost_micros")
    if cost_micros:
        parts.append(f"cost {cost_micros / _MICROS:.6f}")
    return ", ".join(parts)
