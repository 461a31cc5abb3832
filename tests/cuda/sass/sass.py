"""The loops of disassembled kernels (nvdisasm), and what one pass of a loop asks of a multiprocessor."""

import re
from collections import Counter
from dataclasses import dataclass, field

from resources import demangle, short_name

LABEL = re.compile(r"^(\.L_x_\d+):")
INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(.*?);")
BRANCH = re.compile(r"\bBRA\b.*`\((\.L_x_\d+)\)")
NEVER = re.compile(r"^@!U?PT .*")  # executed: ptxas fills gaps with such loads
PREDICATE = re.compile(r"^@!?U?P\w+\s+")
SHARED = ("LDS", "STS", "LDSM", "LDGSTS", "ATOMS")
GROUPS = ("HGMMA", "QGMMA")  # products of four warps: 64 rows, HGMMA.64x128x16: 128 columns


@dataclass
class Loop:
    opcodes: Counter = field(default_factory=Counter)  # with their suffixes: LDS.128

    def count(self, *names):
        return sum(n for opcode, n in self.opcodes.items() if opcode.split(".")[0] in names)

    @property
    def instructions(self):
        return sum(self.opcodes.values())

    @property
    def tensor(self):
        return self.count("HMMA", "QMMA", "IMMA", *GROUPS)

    @property
    def shared_clocks(self):
        """Of a warp: 128 bytes a clock, without conflicts. A quarter of it writes 16 bytes a lane. Four warps together
        read 32 bytes of each column that they multiply."""
        clocks = 0
        for opcode, n in self.opcodes.items():
            if opcode.split(".")[0] in GROUPS:
                clocks += n * int(opcode.split("x")[1]) // 16
            if opcode.split(".")[0] in SHARED:
                clocks += n * (4 if ".128" in opcode or "M88.4" in opcode else 2 if ".64" in opcode else 1)
        return clocks


def loops_of(body):
    """All loops of a function's disassembly: backward branches."""
    opcodes, labels, loops = [], {}, []
    for line in body.splitlines():
        if label := LABEL.match(line.strip()):
            labels[label[1]] = len(opcodes)
        elif instruction := INSTRUCTION.search(line):
            text = PREDICATE.sub("", NEVER.sub("NOP", instruction[1].strip()))
            branch = BRANCH.search(text)
            if branch and labels.get(branch[1], len(opcodes)) < len(opcodes):
                loops.append((labels[branch[1]], len(opcodes) + 1))
            opcodes.append(text.split()[0])
    return [Loop(Counter(opcodes[begin:end])) for begin, end in loops]


def main_loop(loops):
    """The shortest of those with most tensor instructions; without any, the longest: all that a thread repeats."""
    tensor = max((loop.tensor for loop in loops), default=0)
    if tensor > 0:
        return min((loop for loop in loops if loop.tensor == tensor), key=lambda loop: loop.instructions)
    return max(loops, key=lambda loop: loop.instructions, default=Loop())


def kernels_of(disassembly):
    """Main loops by short name."""
    sections = re.split(r"\n\s*\.section\s+\.text\.", disassembly)[1:]
    names = [short_name(name) for name in demangle([section.split(",")[0].strip('"') for section in sections])]
    return {name: main_loop(loops_of(section)) for name, section in zip(names, sections)}
