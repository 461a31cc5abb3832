"""The logs of the node show the course of one request, by its id."""

import json

from node import HANG_SECONDS, ROLES, wait_until

PROMPT = [20 + i * 37 % 900 for i in range(40)]
JSON = {role: ["--log-format", "json"] for role in ROLES}


def request_id_of(node, **fields):
    replies = list(node.stub.Generate(node.request(PROMPT, 4, temperature=0.0, ignore_eos=True, **fields), timeout=HANG_SECONDS))
    return replies[0].started.request_id


def wait_for_lines(node, role, begins, words):
    """Every one of `words` is in a line of the role's log that also contains `begins`."""
    def lines():
        return [line for line in node.log(role).splitlines() if begins in line]
    wait_until(lambda: all(any(word in line for line in lines()) for word in words), 5,
               f"{words} in the log of {role} beside {begins}")


def test_the_id_is_in_every_role_that_worked(make_node):
    with make_node({"router": ["--chunked-below-tokens", "0"]}) as node:
        request_id = request_id_of(node)
        for role, words in (("router", ("generate for anonymous: 40 prompt tokens", "path", "generate done")),
                            ("prefill", ("prefill: 40 tokens", "prefill done")),
                            ("decode", ("decode: after prefill", "decode ended after 3 tokens: OK"))):
            wait_for_lines(node, role, f"[{role}] [{request_id}] ", words)


def test_a_cancelled_request_has_its_id(node):
    call = node.stub.Generate(node.request(PROMPT, 400, ignore_eos=True), timeout=HANG_SECONDS)
    request_id = next(call).started.request_id
    next(reply for reply in call if reply.HasField("tokens"))
    call.cancel()
    wait_for_lines(node, "router", f"[{request_id}] ", ("generate failed", "CANCELLED"))
    wait_for_lines(node, "decode", f"[{request_id}] ", ("decode: from the prompt", "decode ended", "CANCELLED"))


def test_json_lines(make_node):
    with make_node(dict(JSON, decode=["--log-format", "json", "--log-level", "debug"])) as node:
        request_id = request_id_of(node)
        wait_for_lines(node, "decode", request_id, ("decode: from the prompt", "decode ended"))
        wait_for_lines(node, "router", request_id, ("generate done",))
        for role in ROLES:
            lines = [line for line in node.log(role).splitlines() if line.startswith("{")]
            assert len(lines) >= len(node.log(role).splitlines()) - 1  # the router's line on stdout is for scripts
            events = [json.loads(line) for line in lines]
            assert events and all(event["role"] == role and event["time"].endswith("Z") for event in events)
            of_request = [event for event in events if event.get("request_id") == request_id]
            assert bool(of_request) == (role in ("router", "decode"))
            assert all(request_id not in event["message"] for event in events)
