"""A node serves a model with a tokenizer of each published kind: files of the checkpoint to ids of the API and back."""

import json
import shutil

import pytest

from node import HANG_SECONDS


@pytest.mark.parametrize("kind", ["kimi_k2", "mixtral", "qwen"])
def test_tokenizer_of_a_published_kind(kind, api, make_node, tiny_model, repo, tmp_path):
    golden_dir = repo / "tests/golden/text/kinds"
    golden = json.loads((golden_dir / f"{kind}.json").read_text())
    texts = json.loads((golden_dir / "texts.json").read_text())
    model = tmp_path / "model"
    shutil.copytree(tiny_model, model)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (model / name).unlink()
    for name, content in golden["files"].items():
        (model / name).write_text(content)
    inference = api.inference
    with make_node(model=model) as node:
        for text, parsed, plain in zip(texts, golden["parsed"], golden["plain"]):
            if not text:
                continue
            expected = parsed[golden["begins"]:] if plain is None else plain
            reply = node.stub.Tokenize(inference.TokenizeRequest(text=text, no_special_tokens=True), timeout=HANG_SECONDS)
            assert list(reply.ids) == expected, text
        request = inference.GenerateRequest(prompt="Hello 混合 <|im_end|> </s>", max_tokens=16)
        replies = list(node.stub.Generate(request, timeout=HANG_SECONDS))
        assert replies, "an answer in the model's own tokens"
