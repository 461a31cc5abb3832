"""ollama: its own API, /api/*: models, chats, texts, streams, tools and schemas."""

import json

import ollama
from session import MODEL, MOVE, SORT, SORTED, URL, is_side

client = ollama.Client(host=URL)
turn = [{"role": "user", "content": SORT}]
greedy = {"temperature": 0, "num_predict": 64}
tools = [{"type": "function", "function": {"name": "move", "description": "Moves.", "parameters": MOVE}}]

assert MODEL in [each.model for each in client.list().models]
assert "tools" in (client.show(MODEL).capabilities or [])
whole = client.chat(MODEL, turn, options=greedy)
assert SORTED in whole.message.content and whole.done and whole.eval_count > 0
chunks = list(client.chat(MODEL, turn, options=greedy, stream=True))
assert "".join(chunk.message.content or "" for chunk in chunks) == whole.message.content and chunks[-1].done
assert client.generate(MODEL, SORT, options=greedy).response == whole.message.content
assert is_side(json.loads(client.chat(MODEL, turn, format=MOVE, options=greedy).message.content))
assert client.chat(MODEL, turn, tools=tools, options=greedy).message.role == "assistant"
assert client.chat("other", turn, options=greedy).model == MODEL, "any name reaches it"
