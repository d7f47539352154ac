"""What a model without vision is told in place of images.

Everything is added where the image stood or at the end of its turn, never at the conversation's
end, so that the next request starts with the same text and finds its prefix in the cache. Only
the first image of a conversation changes the system prompt.
"""

from __future__ import annotations

from inference.request import TextPart

OMITTED = TextPart("[image omitted: this model has no vision]")

NOTICE = (
    "You have no vision. Each image in this conversation was replaced by the text "
    f'"{OMITTED.text}". Never guess what an image shows; say that you cannot see it.'
)

REMINDER = TextPart(
    "[An image in this turn was omitted because you cannot see images. Do not take screenshots "
    "or open images again: no image can reach you. Go on with what is available as text.]"
)
