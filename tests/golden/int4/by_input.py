"""The layouts of AWQ (version gemm) and GPTQ in NumPy, from their published definition: a matrix of codes [rows, cols] in
words, and back. Scales are [rows, groups], zero points as codes, one for each group of a row. The checkpoint has all of them
with outputs as columns. Packing and reading share no code."""

import numpy

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # the column, of eight, that each nibble of a word has, from the lowest up
IN_ORDER = (0, 1, 2, 3, 4, 5, 6, 7)


def pack_columns(codes, order):
    """[n, m] codes in words [n, m / 8]."""
    words = numpy.zeros((codes.shape[0], codes.shape[1] // 8), numpy.uint32)
    for nibble, column in enumerate(order):
        words |= codes[:, column::8].astype(numpy.uint32) << numpy.uint32(4 * nibble)
    return words.view(numpy.int32)


def read_columns(words, order):
    codes = numpy.zeros((words.shape[0], 8 * words.shape[1]), numpy.int64)
    for row in range(words.shape[0]):
        for word in range(words.shape[1]):
            bits = int(words[row, word]) & 0xFFFFFFFF
            for nibble in range(8):
                codes[row, 8 * word + order[nibble]] = bits >> (4 * nibble) & 15
    return codes


def awq(codes, scales, zeros):
    """Tensors by the end of their name."""
    return {"qweight": pack_columns(codes.T, AWQ_ORDER), "qzeros": pack_columns(zeros.T, AWQ_ORDER),
            "scales": numpy.ascontiguousarray(scales.T)}


def gptq(codes, scales, zeros, v2=False):
    group = codes.shape[1] // scales.shape[1]
    stored = zeros if v2 else (zeros.astype(numpy.int64) - 1) % 16
    return {"qweight": numpy.ascontiguousarray(pack_columns(codes, IN_ORDER).T),
            "qzeros": pack_columns(stored.T, IN_ORDER), "scales": numpy.ascontiguousarray(scales.T),
            "g_idx": (numpy.arange(codes.shape[1]) // group).astype(numpy.int32)}


def weights(form, tensors):
    """The F32 weights [rows, cols] that the tensors stand for: exact products, as F16 times 5 bits is."""
    if form == "awq":
        codes, zeros = read_columns(tensors["qweight"], AWQ_ORDER), read_columns(tensors["qzeros"], AWQ_ORDER)
    else:
        codes = read_columns(numpy.ascontiguousarray(tensors["qweight"].T), IN_ORDER).T
        zeros = read_columns(tensors["qzeros"], IN_ORDER)
        if form == "gptq":
            zeros = (zeros + 1) % 16
    group = codes.shape[0] // zeros.shape[0]
    scales = tensors["scales"].astype(numpy.float32)
    exact = numpy.empty(codes.shape, numpy.float32)
    for i in range(codes.shape[0]):
        exact[i] = scales[i // group] * (codes[i] - zeros[i // group])
    return numpy.ascontiguousarray(exact.T)
