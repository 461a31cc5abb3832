"""Conversations: a turn computes only what is new, and the prefix cache makes no difference to the tokens."""

SYSTEM = [20 + i * 43 % 900 for i in range(3700)]


def talk(node, turns=8):
    """Gives (answers, cached tokens, prompt tokens) of each turn; every turn sends all before it again."""
    history, answers, cached, prompts = list(SYSTEM), [], [], []
    for turn in range(turns):
        history += [20 + (turn * 131 + i * 17) % 900 for i in range(40)]
        replies = list(node.stub.Generate(node.request(history, 20, temperature=0.0, ignore_eos=True), timeout=120))
        answer = [token.id for reply in replies if reply.HasField("tokens") for token in reply.tokens.tokens]
        answers.append(answer)
        cached.append(replies[-1].finished.usage.cached_tokens)
        prompts.append(len(history))
        history += answer
    return answers, cached, prompts


def test_a_turn_computes_only_what_is_new(make_node, absorbed):
    with make_node(dict(absorbed, decode=["--prefix-cache", "false"])) as node:
        expected, cached, _ = talk(node)
        assert cached == [0] * len(cached)
    with make_node(absorbed) as node:
        answers, cached, prompts = talk(node)
        assert answers == expected
        # All but the new message, the last answer's last token, and what does not fill a page of 64 tokens.
        assert all(prompt - hit <= 40 + 1 + 64 for prompt, hit in zip(prompts[1:], cached[1:]))
        again, cached, _ = talk(node)
        assert again == expected
        assert cached[0] >= len(SYSTEM) - 64
