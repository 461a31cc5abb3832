"""The proxy of litellm before a node: chats, streams, messages, responses and counts through it."""

import json
import os
import pathlib
import subprocess
import sys
import time
import urllib.error
import urllib.request

import anthropic
import openai
from session import MODEL, OPENAI_URL, SORT, SORTED, URL

PORT = os.environ["MOESTRO_PORT"]  # a free one
models = [{"model_name": name, "litellm_params": {"model": f"{provider}/{MODEL}", "api_base": url, "api_key": "none"}}
          for name, provider, url in (("one", "openai", OPENAI_URL), ("two", "anthropic", URL),
                                      ("three", "hosted_vllm", OPENAI_URL))]
config = pathlib.Path("proxy.yaml")
config.write_text(json.dumps({"model_list": models, "litellm_settings": {"telemetry": False},
                              "general_settings": {"master_key": "sk-proxy"}}))
program = pathlib.Path(sys.executable).with_name("litellm")
proxy = subprocess.Popen([sys.executable, program, "--config", config, "--host", "127.0.0.1", "--port", PORT])
try:
    base = f"http://127.0.0.1:{PORT}"
    for _ in range(600):
        assert proxy.poll() is None, "the proxy has ended"
        try:
            urllib.request.urlopen(base + "/health/liveliness", timeout=5)
            break
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.5)
    turn = [{"role": "user", "content": SORT}]
    client = openai.OpenAI(base_url=base + "/v1", api_key="sk-proxy", max_retries=0)
    claude = anthropic.Anthropic(base_url=base, api_key="sk-proxy", max_retries=0)
    for name in ("one", "two", "three"):
        whole = client.chat.completions.create(model=name, messages=turn, temperature=0, max_tokens=64)
        assert SORTED in whole.choices[0].message.content, name
        chunks = client.chat.completions.create(model=name, messages=turn, temperature=0, max_tokens=64, stream=True)
        assert SORTED in "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices), name
        message = claude.messages.create(model=name, messages=turn, max_tokens=64, extra_body={"temperature": 0})
        assert SORTED in message.content[0].text, name
        assert claude.messages.count_tokens(model=name, messages=turn).input_tokens > 3, name
        assert SORTED in client.responses.create(model=name, input=SORT, temperature=0).output_text, name
finally:
    proxy.terminate()
    proxy.wait()
