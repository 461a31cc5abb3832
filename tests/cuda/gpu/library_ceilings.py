#!/usr/bin/env python3
"""What this GPU can do at most, by PyTorch's libraries (cuBLASLt for products): rates of large BF16 and FP8 products
and of attention, and the bandwidth of copies within its memory, in DIR/ceilings.json, complete after each of them. In
DIR/ceilings.md beside them what DIR/bench.json and DIR/stream.json have measured. Exits 1 and says why where a rate
cannot be measured.
    library_ceilings.py DIR"""

import json
import os
import statistics
import sys
from pathlib import Path

SIZE = 8192


def seconds(torch, run, warm_up=1.0, repeats=15):
    """The median of single runs, timed on the device once its clocks are up."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    warm = 0
    while warm < warm_up:
        begin.record()
        for _ in range(10):
            run()
        end.record()
        torch.cuda.synchronize()
        warm += max(begin.elapsed_time(end) / 1e3, 1e-3)
    times = []
    for _ in range(repeats):
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(times)


def measure(torch):
    """Names of rates, and what measures each."""
    def factors():
        return [torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16) for _ in range(2)]

    def bf16():
        a, b = factors()
        return 2 * SIZE**3 / seconds(torch, lambda: a @ b)

    def fp8(x_scales, y_scales):
        a, b = factors()
        x, y = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn).t()
        return 2 * SIZE**3 / seconds(torch, lambda: torch._scaled_mm(x, y, x_scales, y_scales, out_dtype=torch.bfloat16))

    def fp8_by_one_scale():
        one = torch.ones((), device="cuda")
        return fp8(one, one)

    def fp8_by_blocks():
        """As the checkpoints have them: a scale for 1 x 128 inputs, and for 128 x 128 weights."""
        return fp8(torch.ones(SIZE // 128, SIZE, device="cuda").t(),
                   torch.ones(SIZE // 128, SIZE // 128, device="cuda").t())

    def attention():
        heads, tokens, width = 16, 8192, 128
        q, k, v = (torch.randn(1, heads, tokens, width, device="cuda", dtype=torch.bfloat16) for _ in range(3))
        attend = torch.nn.functional.scaled_dot_product_attention
        return 2 * heads * tokens**2 * width / seconds(torch, lambda: attend(q, k, v, is_causal=True))

    def copies():
        size = 1 << 30
        source = torch.empty(size, device="cuda", dtype=torch.uint8).random_()
        target = torch.empty_like(source)
        return 2 * size / seconds(torch, lambda: target.copy_(source))

    return {"bf16_flops_per_second": bf16, "fp8_flops_per_second": fp8_by_one_scale,
            "fp8_by_blocks_flops_per_second": fp8_by_blocks, "attention_flops_per_second": attention,
            "copy_bytes_per_second": copies}


def read(path):
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}  # of a bench that has not run, or was cut off


def shares_of_kernels(bench, rates):
    """Rows of a table: a kernel's least time at the libraries' rates, or at the bench's own where those are lower, as a
    share of its time."""
    for row in bench.get("kernels", []):
        rate = rates.get("fp8_flops_per_second" if row["fp8"] else "bf16_flops_per_second")
        if rate and row["flops"]:
            rate = max(rate, bench["mma_fp8_flops_per_second" if row["fp8"] else "mma_bf16_flops_per_second"])
            least = max(row["bytes"] / bench["copy_bytes_per_second"], row["flops"] / rate)
            yield f"| {row['kernel']} | {row['shape']} | {least / row['seconds']:.2f} |"


def shares_of_streams(stream, rates):
    """The same of streamed prefill, as its time over the least one."""
    for row in stream.get("runs", []):
        bf16, rate = rates.get("bf16_flops_per_second"), rates.get(f"{row['inputs']}_flops_per_second")
        if bf16 and rate:
            bf16 = max(bf16, stream["bf16_flops_per_second"])
            rate = max(rate, stream[f"{row['inputs']}_flops_per_second"])
            least = max(row["copy_ceiling_seconds"], row["product_flops"] / rate + row["attention_flops"] / bf16)
            yield f"| {row['tokens']} | {row['inputs']} | {row['seconds'] / least:.2f} |"


def markdown(out, rates):
    lines = ["", f"## What libraries reach on {rates['gpu']} (PyTorch {rates['torch']})", ""]
    lines += [f"- {name}: {rate:.4g}" for name, rate in rates.items() if name.endswith("_per_second")]
    if kernels := list(shares_of_kernels(read(out / "bench.json"), rates)):
        lines += ["", "| kernel | shape | of the libraries' ceiling |", "|---|---|---|", *kernels]
    if streams := list(shares_of_streams(read(out / "stream.json"), rates)):
        lines += ["", "| streamed tokens | inputs | time over the libraries' |", "|---|---|---|", *streams]
    return "\n".join(lines) + "\n"


def write(path, text):
    """Whole, or not at all."""
    new = path.with_suffix(".new")
    new.write_text(text)
    os.replace(new, path)


def main():
    out = Path(sys.argv[1])
    try:
        import torch
    except Exception as error:  # also of its libraries
        sys.exit(f"no PyTorch: {error}")
    if not torch.cuda.is_available():
        sys.exit("PyTorch sees no GPU")
    rates = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
    missing = []
    for name, rate in measure(torch).items():
        try:
            rates[name] = rate()
        except Exception as error:  # what a library lacks is no reason to lose the others
            missing.append(f"{name}: {str(error).splitlines()[0] if str(error) else repr(error)}")
            continue
        write(out / "ceilings.json", json.dumps(rates, indent=2) + "\n")
        write(out / "ceilings.md", markdown(out, rates))
    if missing:
        sys.exit("; ".join(missing))


if __name__ == "__main__":
    main()
