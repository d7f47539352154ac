"""Images through vLLM, with a model that was made for it: it sees, but answers nonsense."""

from __future__ import annotations

from collections.abc import AsyncIterator
from io import BytesIO
from pathlib import Path

import pytest
import pytest_asyncio
from PIL import Image

from inference.errors import ErrorCode
from inference.events import Failed, Finished, Started
from inference.request import (
    CacheMark,
    ImagePart,
    Message,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from inference.weights import DEFAULT_MODEL
from tests.contracts.conftest import Subject, started
from tests.contracts.requests import collect, make_entry, say, text_of
from tests.contracts.test_capabilities import asked
from tests.contracts.tiny_models import make_vision_model

pytestmark = [
    pytest.mark.engine,
    pytest.mark.asyncio(loop_scope="session"),
    # vLLM leaves it to the collector to close its sockets.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

LONG = TextPart("word " * 300)


def picture(color: str) -> ImagePart:
    content = BytesIO()
    Image.new("RGB", (80, 60), color).save(content, "PNG")
    return ImagePart(media_type="image/png", data=content.getvalue())


RED, BLUE = picture("red"), picture("blue")


def shown(*parts: TextPart | ImagePart) -> Message:
    return Message(role=Role.USER, parts=parts)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def seer(
    models_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Subject]:
    """Return vLLM with a model that sees."""
    folder = tmp_path_factory.mktemp("models")
    make_vision_model(models_dir / DEFAULT_MODEL, folder / "seer")
    entry = make_entry(
        backend="vllm", weights="seer", vision=True, engine_options={"kv_cache_gib": 1}
    )
    async with started(entry, folder) as subject:
        yield subject


async def prompt_tokens(seer: Subject, *messages: Message) -> int:
    first, *_ = await collect(seer.backend, asked(*messages, max_tokens=1))
    assert isinstance(first, Started)
    return first.prompt_tokens


async def test_an_image_is_seen_and_answered(seer: Subject) -> None:
    events = await collect(
        seer.backend, asked(shown(TextPart("What is"), RED, TextPart("this?")), max_tokens=5)
    )

    assert isinstance(events[-1], Finished)
    assert text_of(events)


async def test_every_image_makes_the_prompt_longer(seer: Subject) -> None:
    none = await prompt_tokens(seer, shown(TextPart("Well?")))
    one = await prompt_tokens(seer, shown(RED, TextPart("Well?")))
    two = await prompt_tokens(seer, shown(RED, BLUE, TextPart("Well?")))

    assert one - none == two - one > 3


async def test_an_image_in_a_result_is_seen_too(seer: Subject) -> None:
    def conversation(*parts: TextPart | ImagePart) -> list[Message]:
        call = ToolCallPart(id="1", name="shoot", arguments="{}")
        return [
            say(Role.USER, "Take a picture."),
            Message(role=Role.ASSISTANT, parts=(TextPart("So."), call)),
            Message(role=Role.USER, parts=(ToolResultPart(call_id="1", parts=parts),)),
        ]

    without = await prompt_tokens(seer, *conversation(TextPart("Done.")))
    with_it = await prompt_tokens(seer, *conversation(TextPart("Done."), RED))

    assert with_it - without > 3


async def test_it_counts_images_as_a_run_does(seer: Subject) -> None:
    message = shown(RED, TextPart("Well?"), BLUE)

    count = await seer.backend.count(asked(message))

    assert count == await prompt_tokens(seer, message)
    # Counting left no trace that would make the run after it fail.
    assert count == await prompt_tokens(seer, message)


async def test_one_image_is_not_taken_for_another_in_the_cache(seer: Subject) -> None:
    async def cached(image: ImagePart) -> int:
        request = asked(shown(image, LONG), max_tokens=1, cache_salt="images")
        *_, finished = await collect(seer.backend, request)
        assert isinstance(finished, Finished)
        return finished.usage.cached_tokens

    assert await cached(RED) == 0
    assert await cached(RED) > 0
    assert await cached(BLUE) == 0


async def test_a_mark_behind_an_image_has_the_image_before_it(seer: Subject) -> None:
    request = asked(
        shown(LONG, RED, TextPart("word " * 100)),
        max_tokens=1,
        cache_salt="mark",
        cache_mark=CacheMark(message=0, part=1),
    )

    *_, finished = await collect(seer.backend, request)

    assert isinstance(finished, Finished)
    text_tokens = await seer.backend.count(asked(shown(LONG)))
    assert finished.usage.cache_written_tokens > text_tokens - 8 + 3


async def test_what_is_no_image_is_refused(seer: Subject) -> None:
    broken = ImagePart(media_type="image/png", data=b"no image")

    (failed,) = await collect(seer.backend, asked(shown(broken)))

    assert failed == Failed(code=ErrorCode.INVALID_REQUEST, message="an image cannot be read")
