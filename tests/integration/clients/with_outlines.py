"""outlines with its models of vLLM and SGLang: each of its types of output binds the answer."""

import json
import re

import openai
import outlines
import pydantic
from outlines.types import CFG, Regex
from session import MODEL, OPENAI_URL, SORT, SORTED, Side


class Step(pydantic.BaseModel):
    to: Side


client = openai.OpenAI(base_url=OPENAI_URL, api_key="none", max_retries=0)
vllm = outlines.from_vllm(client, MODEL)
sglang = outlines.from_sglang(client, MODEL)
for model in (vllm, sglang):
    assert SORTED in model(SORT, temperature=0)
    Step.model_validate_json(model(SORT, Step))
    assert re.fullmatch("[a-c]{3}", model(SORT, Regex("[a-c]{3}")))
assert vllm(SORT, Side) in ("left", "right")
assert vllm(SORT, CFG('root ::= "up" | "down"')) in ("up", "down")
assert json.loads("".join(vllm.stream(SORT, Step))).keys() == {"to"}
