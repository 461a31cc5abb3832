"""FP8 as DeepSeek-V3 publishes it: E4M3 codes with one F32 scale for each block of 128 x 128."""

import contextlib

import torch

BLOCK, LARGEST = 128, 448.0


def quantise(weight):
    """-> codes [N, K] float8_e4m3fn, scale_inv [ceil(N/128), ceil(K/128)] F32: weight = codes * scale_inv"""
    rows, columns = weight.shape
    padded = torch.nn.functional.pad(weight.float(), (0, -columns % BLOCK, 0, -rows % BLOCK))
    blocks = padded.view(padded.shape[0] // BLOCK, BLOCK, -1, BLOCK)
    scale = blocks.abs().amax((1, 3)).clamp(min=1e-12) / LARGEST
    codes = (blocks / scale[:, None, :, None]).to(torch.float8_e4m3fn).view(padded.shape)
    return codes[:rows, :columns].contiguous(), scale


def dequantise(codes, scale):
    rows, columns = codes.shape
    return codes.float() * scale.repeat_interleave(BLOCK, 0)[:rows].repeat_interleave(BLOCK, 1)[:, :columns]


def quantised_weights(model):
    """Parameters that are published in FP8: all linear layers of attention, MLPs and experts, but not router and head."""
    return [p for n, p in model.model.layers.named_parameters() if n.endswith("_proj.weight") or n.endswith("_mqa.weight")]


@contextlib.contextmanager
def rounded(parameters, on=True):
    """Inside, the parameters have their values rounded to FP8; afterwards their own again."""
    own = [p.data for p in parameters] if on else []
    for p in parameters if on else []:
        p.data = dequantise(*quantise(p.data))
    try:
        yield
    finally:
        for p, value in zip(parameters, own):
            p.data = value
