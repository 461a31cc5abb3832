"""guidance with its model of vLLM: its grammars bind what is generated."""

import re

from guidance import assistant, gen, select, user
from guidance.models.experimental import VLLMModel
from session import MODEL, OPENAI_URL, SORT

model = VLLMModel(MODEL, base_url=OPENAI_URL, api_key="none", echo=False)
with user():
    model += SORT
with assistant():
    side = model + select(["left", "right"], name="to")
    word = model + gen(regex="[a-c]{3}", name="word")
assert side["to"] in ("left", "right")
assert re.fullmatch("[a-c]{3}", word["word"])
