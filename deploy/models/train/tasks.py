"""Procedurally generated tasks with verifiable answers: a tiny Python REPL, and chat about the same things.

Every example is a list of (text, task) pieces. The task of a question is "", the answers are what the model is to
produce. The Python interpreter itself computes them, so none can be wrong.
"""

import random

LETTERS = "abcdefghijklmnopqrstuvwxyz"
USER, ASSISTANT = "<｜User｜>", "<｜Assistant｜>"


def number(rng, digits=2):
    return rng.randrange(10 ** rng.randint(1, digits))


def numbers(rng, low=2, high=5):
    """A list; three in four have digits only."""
    digits = rng.choice([1, 1, 1, 2])
    return [number(rng, digits) for _ in range(rng.randint(low, high))]


def word(rng, low=2, high=5):
    return "".join(rng.choice(LETTERS) for _ in range(rng.randint(low, high)))


def few_letters(rng):
    """A word in which letters repeat, for counting and replacing."""
    letters = rng.sample(LETTERS, rng.randint(2, 3))
    return "".join(rng.choice(letters) for _ in range(rng.randint(3, 5)))


def add(rng):
    return f"{number(rng)} + {number(rng)}"


def subtract(rng):
    return f"{number(rng)} - {number(rng)}"


def multiply(rng):
    return f"{number(rng)} * {rng.randint(0, 5)}"


def compare(rng):
    a = number(rng)
    b = a if rng.random() < 0.25 else number(rng)
    return f"{a} {rng.choice(['<', '>', '==', '!='])} {b}"


def sort(rng):
    return f"sorted({numbers(rng)}{rng.choice(['', '', ', reverse=True'])})"


def reverse(rng):
    return rng.choice([f"{numbers(rng)}[::-1]", f"'{word(rng)}'[::-1]"])


def slice_(rng):
    items, text = numbers(rng, 3, 5), word(rng, 3, 5)
    a, b = sorted(rng.choices(range(4), k=2))
    return rng.choice(
        [f"{items}[{a}:{b}]", f"{items}[:{b}]", f"{items}[{a}:]", f"'{text}'[:{b}]", f"'{text}'[{a}:]", f"{items}[-{b or 1}:]"]
    )


def index(rng):
    items, text = numbers(rng, 3, 5), word(rng, 3, 5)
    i = rng.randint(-len(items), len(items) - 1)
    return rng.choice([f"{items}[{i}]", f"'{text}'[{rng.randint(-2, len(text) - 1)}]"])


def count(rng):
    text = few_letters(rng)
    items = [rng.randrange(4) for _ in range(rng.randint(3, 5))]
    return rng.choice(
        [f"'{text}'.count('{rng.choice(text)}')", f"{items}.count({rng.choice(items)})", f"len('{word(rng, 1, 6)}')", f"len({numbers(rng, 1, 5)})"]
    )


def extremes(rng):
    return f"{rng.choice(['min', 'max'])}({numbers(rng)})"


def total(rng):
    return f"sum({[rng.randrange(10) for _ in range(rng.randint(2, 3))]})"


def strings(rng):
    text = few_letters(rng)
    a, b = rng.choice(text), rng.choice(LETTERS)
    return rng.choice(
        [f"'{word(rng)}'.upper()", f"'{word(rng).upper()}'.lower()", f"'{word(rng)}'.capitalize()", f"'{text}'.replace('{a}', '{b}')",
         f"'{word(rng, 1, 3)}' + '{word(rng, 1, 3)}'", f"'{word(rng, 1, 3)}' * {rng.randint(2, 3)}"]
    )  # fmt: skip


def contains(rng):
    items, text = [number(rng, 1) for _ in range(rng.randint(1, 4))], word(rng, 1, 4)
    x = rng.choice(items) if rng.random() < 0.5 else number(rng, 1)
    c = rng.choice(text) if rng.random() < 0.5 else rng.choice(LETTERS)
    return rng.choice([f"{x} in {items}", f"'{c}' in '{text}'"])


def lists(rng):
    items = [rng.randrange(10) for _ in range(rng.randint(2, 4))]
    k = rng.randint(1, 3)
    return rng.choice(
        [f"{items} + {numbers(rng, 1, 3)}", f"[x + {k} for x in {items}]", f"[x * 2 for x in {items}]", f"list(range({rng.randint(1, 9)}))",
         f"list('{word(rng, 2, 5)}')", f"[x for x in {items} if x > {rng.randrange(8)}]"]
    )  # fmt: skip


EXPRESSIONS = {
    "add": add, "subtract": subtract, "multiply": multiply, "compare": compare, "sort": sort, "reverse": reverse,
    "slice": slice_, "index": index, "count": count, "extremes": extremes, "sum": total, "strings": strings,
    "contains": contains, "lists": lists,
}  # fmt: skip


def evaluate(expression, variables=None):
    return repr(eval(expression, {"__builtins__": {"sorted": sorted, "min": min, "max": max, "sum": sum, "len": len, "range": range, "list": list, "True": True}}, variables or {}))  # fmt: skip


def repl(rng, task, odds):
    """A question of the task after up to three earlier ones of any kind."""
    earlier = rng.choices(list(EXPRESSIONS), [odds[t] for t in EXPRESSIONS], k=rng.choice([0, 0, 1, 2, 3]))
    pieces = []
    for t in earlier + [task]:
        expression = EXPRESSIONS[t](rng)
        pieces += [(f">>> {expression}\n", ""), (evaluate(expression), t), ("\n", "")]
    return pieces[:-1]


def variables(rng, task, odds):
    """Assignments, then an expression over them."""
    names = rng.sample(LETTERS, 2)
    if rng.random() < 0.5:
        values = [number(rng) for _ in names]
        expression = f"{names[0]} {rng.choice('+-')} {rng.choice(names[1:] + [str(number(rng, 1))])}"
    else:
        values = [numbers(rng, 2, 4), number(rng)]
        expression = rng.choice(["sorted({0})", "{0}[::-1]", "max({0})", "min({0})", "len({0})", "{0} + [{1}]", "{1} in {0}"]).format(*names)
    lines = [f">>> {n} = {v}\n" for n, v in zip(names, values)]
    rng.shuffle(lines)
    return [("".join(lines) + f">>> {expression}\n", ""), (evaluate(expression, dict(zip(names, values))), task)]


def ask(rng):
    """A question about fresh values: (words, the value the answer shows)."""
    kind = rng.randrange(8)
    items, text = numbers(rng), word(rng, 3, 5)
    a, b = number(rng), number(rng)
    if kind == 0:
        return f"What is {a} + {b}?", a + b
    if kind == 1:
        return f"What is {a} - {b}?", a - b
    if kind == 2:
        return f"Sort {items}.", sorted(items)
    if kind == 3:
        return f"Reverse {items}.", items[::-1]
    if kind == 4:
        return f"Reverse '{text}'.", text[::-1]
    if kind == 5:
        return f"Write '{text}' in capitals.", text.upper()
    if kind == 6:
        return f"How many letters has '{text}'?", len(text)
    return f"What is the largest of {items}?", max(items)


def follow(rng, value):
    """A question about the value of the last answer."""
    k = rng.randint(1, 9)
    if isinstance(value, int):
        return rng.choice([(f"Add {k}.", value + k), (f"Take away {k}.", value - k), (f"Is it more than {k * 10}?", value > k * 10)])
    if isinstance(value, list):
        return rng.choice([("Now reverse it.", value[::-1]), ("How many are there?", len(value)), ("Which is the smallest?", min(value)), ("What is the first one?", value[0])])
    if isinstance(value, str):
        return rng.choice([("Now reverse it.", value[::-1]), ("In capitals?", value.upper()), ("How many letters?", len(value)), ("What is the first letter?", value[0])])
    return rng.choice([("Are you sure?", "Yes")] * 2 + [("Thanks!", "You are welcome.")])


def chat(rng, task, odds):
    """One to four turns in the model's own template (the BOS token comes from the tokenizer)."""
    pieces, value = [], None
    greet = rng.random() < 0.15
    for turn in range(rng.randint(1, 4)):
        if turn == 0 and greet:
            question, answer = rng.choice(["Hi", "Hello", "Hello!", "Hi!"]), "Hello! Ask me for a sum, or to sort, reverse or count something."
        elif rng.random() < 0.25:
            question = EXPRESSIONS[rng.choices(list(EXPRESSIONS), [odds[t] for t in EXPRESSIONS])[0]](rng)
            value = None
            answer = evaluate(question)
        else:
            use = value is not None and rng.random() < 0.6
            question, value = follow(rng, value) if use else ask(rng)
            answer = {True: "Yes", False: "No"}[value] if isinstance(value, bool) else str(value)
            if isinstance(value, bool) or answer in ("Yes", "You are welcome."):
                value = None
        pieces += [(f"{USER}{question}{ASSISTANT}", ""), (answer, task)]
    return pieces


TASKS = {name: repl for name in EXPRESSIONS} | {"variables": variables, "chat": chat}
EVEN = dict.fromkeys(TASKS, 1.0)
GUESSED_WRONG = {"compare": 0.5, "contains": 0.5}  # share of answers that guessing gets wrong; nearly all in other tasks
EASY = ["add", "compare", "sort", "reverse", "extremes", "strings", "contains"]


FIXED = {"Hi", "Hello", "Hello!", "Hi!", "Are you sure?", "Thanks!"}  # nothing to hold out


def held_out_questions(pieces):
    """Per question whether it, with the answer it may refer to, belongs to the tenth that is never trained on."""
    before, marks = "", []
    for text, task in pieces:
        question = text.removeprefix(">>> ").removeprefix(USER).removesuffix(ASSISTANT).strip()
        if task:
            before = text
        elif question:
            depends = text.startswith(USER) and not any(c.isdigit() or c == "'" for c in question)
            key = f"{before}|{question}" if depends else question
            marks.append(question not in FIXED and random.Random(key).random() < 0.1)
    return marks


def sample(rng, name=None, odds=EVEN, held_out=False):
    """(task, pieces), the task drawn by the odds. For training no question is held out; for scoring the last one is."""
    while True:
        task = name or rng.choices(list(odds), list(odds.values()))[0]
        pieces = TASKS[task](rng, task, odds)
        marks = held_out_questions(pieces)
        if marks[-1] if held_out else not any(marks):
            return task, pieces
