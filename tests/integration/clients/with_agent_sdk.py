"""claude-agent-sdk, which runs the Claude Code that comes with it: a question, and a tool of this script that it calls.

The demo model never calls a tool by itself. So a proxy between the two puts `tool_choice` into the first request."""

import asyncio
import http.server
import json
import threading
import urllib.request

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, create_sdk_mcp_server, query, tool
from session import MODEL, MOVE, SORT, URL

moves, tool_results = [], []


class Forcing(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        blocks = [block for message in body.get("messages", []) if isinstance(message["content"], list)
                  for block in message["content"]]
        results = [block for block in blocks if block["type"] == "tool_result"]
        tool_results.extend(results)
        if body.get("tools") and not results:
            body["tool_choice"] = {"type": "any", "disable_parallel_tool_use": True}
        headers = {"Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(URL + self.path, json.dumps(body).encode(), headers)) as reply:
            self.send_response(reply.status)
            self.send_header("Content-Type", reply.headers["Content-Type"])
            self.end_headers()
            self.wfile.write(reply.read())

    def do_HEAD(self):  # whether the server is there
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


@tool("move", "Moves.", MOVE)
async def move(arguments):
    moves.append(arguments["to"])
    return {"content": [{"type": "text", "text": "done"}]}


async def ask(url, **options):
    environment = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_AUTH_TOKEN": "none"}
    environment |= {f"ANTHROPIC_DEFAULT_{kind}_MODEL": MODEL for kind in ("OPUS", "SONNET", "HAIKU")}
    asked = query(prompt=SORT, options=ClaudeAgentOptions(env=environment, setting_sources=[], **options))
    result = [message async for message in asked if isinstance(message, ResultMessage)][-1]
    assert not result.is_error, result
    return result


async def main():
    await ask(URL)
    proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Forcing)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    server = create_sdk_mcp_server("hand", tools=[move])
    result = await ask(f"http://127.0.0.1:{proxy.server_port}", tools=[], mcp_servers={"hand": server},
                       allowed_tools=["mcp__hand__move"])
    assert result.num_turns == 2 and moves in (["left"], ["right"]), (result, moves)
    assert any("done" in json.dumps(each["content"]) for each in tool_results), tool_results


asyncio.run(main())
