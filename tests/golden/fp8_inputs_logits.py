"""Writes golden logits of a layer of DeepSeek-V3 with inputs of FP8 weights rounded to FP8, as it is published.

    python tests/golden/fp8_inputs_logits.py build/release/bin/moestro

README.md describes the files; tests/common/model/fp8_inputs_golden_test.cc compares them.
"""

import argparse
import contextlib
import json
import pathlib
import subprocess
import tempfile

import torch
import transformers

import oracle
import weights
from checkpoint import Checkpoint

ROOT = pathlib.Path(__file__).resolve().parent
PROMPT = ROOT / "deepseek_v3_tiny" / "prompt_65.json"  # its tokens
OUT = ROOT / "fp8_inputs"
SPAN = 128


def round_fp8(x):
    """BF16, then E4M3 with a scale for each 128 numbers of a token: act_quant of DeepSeek-V3's inference/kernel.py."""
    spans = torch.nn.functional.pad(weights.round_bf16(x), (0, -x.shape[-1] % SPAN)).unflatten(-1, (-1, SPAN))
    scale = spans.abs().amax(-1, keepdim=True) / 448.0
    codes = torch.where(scale > 0, spans / scale, 0.0).to(torch.float8_e4m3fn).float()
    return (codes * scale).flatten(-2)[..., : x.shape[-1]]


@contextlib.contextmanager
def fp8_inputs(model, family):
    """Rounds to FP8 the input of every linear layer in FP8, on top of what weights.bf16_activations rounds."""
    quantised = [m for name, m in model.named_modules() if isinstance(m, torch.nn.Linear) and name != "lm_head"]
    experts = [m for m in model.modules() if isinstance(m, family.hf.DeepseekV3Experts)]
    handles = [m.register_forward_pre_hook(lambda _, inputs: (round_fp8(inputs[0]), *inputs[1:])) for m in quantised]
    with family.bf16_activations(model), weights.hooks(handles):
        in_bf16 = [m.forward for m in experts]
        for module in experts:
            module.forward = weights.experts_forward(round_fp8).__get__(module)
        yield
        for module, forward in zip(experts, in_bf16):
            module.forward = forward


def write(checkpoint):
    family = oracle.FAMILIES["deepseek_v3"]
    runner = oracle.Runner(family, family.load_model(checkpoint), checkpoint.token_count())
    prompt = json.loads(PROMPT.read_text())["prompt"]
    probes = oracle.probe_ids(runner.token_count)
    exact = runner.logits([prompt])[0]
    with fp8_inputs(runner.model, family):
        logits = runner.logits([prompt])[0]
        variant = oracle.variant_record(runner, prompt, probes)
    # As the other files have them: the layer has no router, and the deviation of BF16 is of no use here.
    variant |= {"router_margin": [0.0] * len(prompt), "deviation": [0.0] * len(prompt)}
    case = {"checkpoint": {"sha256": checkpoint.checksum(), "crc32": oracle.crc32(checkpoint)},
            "token_count": runner.token_count, "prompt": prompt, "probe_ids": probes, "variants": {"f32": variant}}
    OUT.mkdir(exist_ok=True)
    oracle.write_json(OUT / PROMPT.name, case)
    oracle.write_json(OUT / "manifest.json", {"checkpoint": case["checkpoint"], "cases": [PROMPT.name],
                                              "transformers": transformers.__version__,
                                              "torch": torch.__version__.split("+")[0]})
    print(f"off by {(logits - exact).square().mean().sqrt():.4f} root mean square, logits "
          f"{logits.square().mean().sqrt():.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("moestro")
    moestro = parser.parse_args().moestro
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as directory:
        out = pathlib.Path(directory) / "model"
        subprocess.run([moestro, "make-model", "--preset", "tiny", "--layers", "1", "--out", out], check=True)
        write(Checkpoint(out))


if __name__ == "__main__":
    main()
