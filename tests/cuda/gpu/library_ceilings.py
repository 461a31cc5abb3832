#!/usr/bin/env python3
"""What this GPU can do at most, by PyTorch's libraries: rates of large BF16 and FP8 products and of attention, and the
bandwidth of copies within its memory, as JSON on standard output. Exits 1 and says why where it cannot be measured.
    library_ceilings.py > ceilings.json"""

import json
import statistics
import sys

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


def fp8_rate(torch, a, b):
    """Of a product with one scale for each factor; None where the library has none for this GPU."""
    one = torch.ones((), device="cuda")
    x, y = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn).t()
    try:
        return 2 * SIZE**3 / seconds(torch, lambda: torch._scaled_mm(x, y, one, one, out_dtype=torch.bfloat16))
    except (AttributeError, RuntimeError) as error:
        print(f"no FP8 products: {error}", file=sys.stderr)
        return None


def measure(torch):
    a, b = (torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    rates = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
             "bf16_flops_per_second": 2 * SIZE**3 / seconds(torch, lambda: a @ b)}
    if fp8 := fp8_rate(torch, a, b):
        rates["fp8_flops_per_second"] = fp8
    heads, tokens, width = 16, 8192, 128
    q, k, v = (torch.randn(1, heads, tokens, width, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    attend = torch.nn.functional.scaled_dot_product_attention
    rates["attention_flops_per_second"] = (
        2 * heads * tokens**2 * width / seconds(torch, lambda: attend(q, k, v, is_causal=True)))
    source = torch.empty(1 << 30, device="cuda", dtype=torch.uint8).random_()
    target = torch.empty_like(source)
    rates["copy_bytes_per_second"] = 2 * source.numel() / seconds(torch, lambda: target.copy_(source))
    return rates


def main():
    try:
        import torch
    except ImportError as error:
        sys.exit(f"no PyTorch: {error}")
    if not torch.cuda.is_available():
        sys.exit("PyTorch sees no GPU")
    print(json.dumps(measure(torch), indent=2))


if __name__ == "__main__":
    main()
