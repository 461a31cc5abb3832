"""What ptxas says of each kernel (-Xptxas -v): registers and spills, by target."""

import re
import subprocess
from dataclasses import dataclass

ENTRY = re.compile(r"Compiling entry function '([^']+)' for '(\w+)'")
SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")
DTYPES = ("F32 BF16 FP8 F16 I8 Q8_0 Q4_0 Q5_0 Q4_K Q5_K Q6_K I4_32 I4_128 MXFP4 I4Z_32 I4Z_128 Q4_1 Q5_1").split()


@dataclass
class Resources:
    kernel: str  # as short_name has it
    target: str  # sm_90
    registers: int = 0
    spilled: int = 0  # bytes that a thread stores


def short_name(demangled):
    """LinearKernel<Tiling<FP8, true, 4, 64, 2, 3>> of the whole signature."""
    name = re.sub(r"(?:void )?moestro::cuda::\(anonymous namespace\)::", "", demangled)
    name = name.replace("(anonymous namespace)::", "").replace("moestro::cuda::", "")
    name = re.sub(r"\(moestro::DType\)(\d+)", lambda number: DTYPES[int(number[1])], name)
    return re.sub(r"\(.*$", "", name).replace(" >", ">")


def demangle(names):
    if not names:
        return []
    text = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    return text.splitlines()


def parse(output):
    """Of one or more compilations."""
    found, mangled = [], []
    for line in output.splitlines():
        if entry := ENTRY.search(line):
            found.append(Resources(kernel="", target=entry[2]))
            mangled.append(entry[1])
        elif found and (spills := SPILLS.search(line)):
            found[-1].spilled = int(spills[2])
        elif found and (registers := REGISTERS.search(line)):
            found[-1].registers = int(registers[1])
    for resources, name in zip(found, demangle(mangled)):
        resources.kernel = short_name(name)
    return found


def serialized(output):
    """A line for each kernel whose wgmma products ptxas makes wait for each other: half of their rate, and no error."""
    of = re.compile(r"\((C75\d\d)\).*wgmma\.mma_async instructions are serialized.*in the function '([^']+)'")
    found = [match for line in output.splitlines() if (match := of.search(line))]
    return [f"{short_name(name)}: products are serialized ({match[1]})"
            for match, name in zip(found, demangle([match[2] for match in found]))]


def excess(found, budget):
    """A line for each kernel that takes more registers than its budget, or spills more."""
    lines = []
    for of in found:
        limit = next((row["registers"] for row in budget["registers"] if re.search(row["kernel"], of.kernel)), 255)
        spill = sum(row["bytes"] for row in budget["spills"]
                    if re.search(row["kernel"], of.kernel) and row["target"] == of.target)
        if of.registers > limit:
            lines.append(f"{of.kernel} for {of.target}: {of.registers} registers, {limit} are allowed")
        if of.spilled > spill:
            lines.append(f"{of.kernel} for {of.target}: {of.spilled} bytes are spilled, {spill} are allowed")
    return lines
