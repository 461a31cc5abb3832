#!/usr/bin/env python3
"""Writes the fixed held-out set: one JSON object per line with the task, the prompt (text or chat messages) and the answer.

    evalset.py FILE
"""

import json
import random
import sys

import tasks

PER_TASK = 100


def example(task, pieces):
    answer = pieces[-1][0]
    if task != "chat":
        return {"task": task, "prompt": "".join(text for text, _ in pieces[:-1]), "answer": answer}
    messages = []
    for text, answers in pieces[:-1]:
        content = text if answers else text.removeprefix(tasks.USER).removesuffix(tasks.ASSISTANT)
        messages.append({"role": "assistant" if answers else "user", "content": content})
    return {"task": task, "messages": messages, "answer": answer}


def write(path):
    rng = random.Random("held out")
    with open(path, "w") as f:
        for task in tasks.TASKS:
            for _ in range(PER_TASK):
                f.write(json.dumps(example(*tasks.sample(rng, task, held_out=True))) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    write(sys.argv[1])
