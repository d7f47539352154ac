"""Small models made on the spot, for what the default model cannot do: see, and think.

They borrow the default model's tokenizer, in which special tokens that no chat uses get the names
that are needed.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")
_SPARE_TOKENS = ("<repo_name>", "<reponame>", "<file_sep>", "<filename>")
_VISION_TOKENS = ("<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>")

_VISION_TEMPLATE = """\
{% for message in messages %}<|im_start|>{{ message['role'] }}
{% if message['content'] is string %}{{ message['content'] }}{% else %}\
{% for part in message['content'] %}{% if part['type'] == 'image' %}<image>\
{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

_THINKING_TEMPLATE = """\
{% for message in messages %}<|im_start|>{{ message['role'] }}
{% if message['reasoning'] %}<think>
{{ message['reasoning'] }}
</think>

{% endif %}{{ message['content'] }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
<think>
{% if enable_thinking is defined and not enable_thinking %}
</think>

{% else %}The question is{% endif %}{% endif %}"""


def make_thinking_model(source: Path, folder: Path) -> None:
    """Make the default model think aloud, as its template begins every answer with a thought.

    It was never taught to end one: a request needs a budget for that.
    """
    _borrow_tokenizer(source, folder, "<think>", "</think>")
    for name in ("config.json", "model.safetensors"):
        (folder / name).symlink_to(source / name)
    (folder / "chat_template.jinja").write_text(_THINKING_TEMPLATE)


def make_vision_model(source: Path, folder: Path) -> None:
    """Make a model that sees: Idefics 3's architecture, with few and random weights.

    An image is a handful of tokens of its prompt. What it answers means nothing.
    """
    import torch
    from transformers import (
        Idefics3Config,
        Idefics3ForConditionalGeneration,
        Idefics3ImageProcessorPil,
        Idefics3Processor,
        PreTrainedTokenizerFast,
    )

    _borrow_tokenizer(source, folder, *_VISION_TOKENS)
    torch.manual_seed(0)
    width = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2}
    config = Idefics3Config(
        vision_config={**width, **heads, "image_size": 56, "patch_size": 14},
        text_config={
            **width,
            **heads,
            "model_type": "llama",
            "num_key_value_heads": 1,
            "vocab_size": 49152,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "pad_token_id": 2,
        },
        image_token_id=3,
        scale_factor=2,
        pad_token_id=2,
    )
    Idefics3ForConditionalGeneration(config).save_pretrained(folder)
    Idefics3Processor(
        image_processor=Idefics3ImageProcessorPil(
            size={"longest_edge": 56}, max_image_size={"longest_edge": 56}, do_image_splitting=False
        ),
        tokenizer=PreTrainedTokenizerFast.from_pretrained(folder),
        image_seq_len=4,
    ).save_pretrained(folder)
    (folder / "chat_template.jinja").write_text(_VISION_TEMPLATE)


def _borrow_tokenizer(source: Path, folder: Path, *names: str) -> None:
    """Copy the tokenizer, with `names` in the place of tokens that stand for nothing."""
    folder.mkdir(parents=True)
    for name in _TOKENIZER_FILES:
        shutil.copy(source / name, folder)
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    for spare, name in zip(_SPARE_TOKENS, names, strict=False):
        (token,) = (entry for entry in tokenizer["added_tokens"] if entry["content"] == spare)
        token["content"] = name
        tokenizer["model"]["vocab"][name] = tokenizer["model"]["vocab"].pop(spare)
    path.write_text(json.dumps(tokenizer))
