#!/usr/bin/env python3
"""What this GPU can do at most, by PyTorch's libraries (cuBLASLt for products): rates of large BF16 and FP8 products
and of attention, and the bandwidth of copies within its memory, as JSON in a file, complete after each of them. Exits 1
and says why where it cannot be measured.
    library_ceilings.py ceilings.json"""

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


def fp8_rate(torch, a, b, x_scales, y_scales):
    """Of cuBLASLt's product; None where the library has none for this GPU."""
    x, y = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn).t()
    try:
        return 2 * SIZE**3 / seconds(torch, lambda: torch._scaled_mm(x, y, x_scales, y_scales, out_dtype=torch.bfloat16))
    except (AttributeError, RuntimeError) as error:
        print(f"no FP8 products: {error}", file=sys.stderr)
        return None


def measure(torch):
    """Each rate, by name, when it is known."""
    a, b = (torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    yield "bf16_flops_per_second", 2 * SIZE**3 / seconds(torch, lambda: a @ b)
    one = torch.ones((), device="cuda")
    if fp8 := fp8_rate(torch, a, b, one, one):  # one scale for each factor
        yield "fp8_flops_per_second", fp8
    # As the checkpoints have them: a scale for 1 x 128 inputs, and for 128 x 128 weights.
    inputs = torch.ones(SIZE // 128, SIZE, device="cuda").t()
    weights = torch.ones(SIZE // 128, SIZE // 128, device="cuda").t()
    if fp8 := fp8_rate(torch, a, b, inputs, weights):
        yield "fp8_by_blocks_flops_per_second", fp8
    heads, tokens, width = 16, 8192, 128
    q, k, v = (torch.randn(1, heads, tokens, width, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    attend = torch.nn.functional.scaled_dot_product_attention
    yield ("attention_flops_per_second",
           2 * heads * tokens**2 * width / seconds(torch, lambda: attend(q, k, v, is_causal=True)))
    source = torch.empty(1 << 30, device="cuda", dtype=torch.uint8).random_()
    target = torch.empty_like(source)
    yield "copy_bytes_per_second", 2 * source.numel() / seconds(torch, lambda: target.copy_(source))


def write(path, rates):
    """Whole, or not at all."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(rates, indent=2) + "\n")
    os.replace(new, path)


def main():
    try:
        import torch
    except ImportError as error:
        sys.exit(f"no PyTorch: {error}")
    if not torch.cuda.is_available():
        sys.exit("PyTorch sees no GPU")
    rates = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
    for name, rate in measure(torch):
        rates[name] = rate
        write(Path(sys.argv[1]), rates)


if __name__ == "__main__":
    main()
