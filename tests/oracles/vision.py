"""Forward passes of image networks, from the raw tensors of a state dict, in float64.

Written without `torch.nn` and without the package: a convolution is a sum over the places of its kernel, batch
normalisation is arithmetic with four vectors. Papers are named at each network.
"""

import math

import numpy as np


def convolve(x, weight, bias=None, stride=1, padding=0):
    """(n, c, h, w) by (o, c / groups, k, k); groups are read off the channels."""
    out, inner, height, width = weight.shape
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    groups = x.shape[1] // inner
    rows, columns = ((size - kernel) // stride + 1 for size, kernel in zip(x.shape[2:], (height, width), strict=True))
    found = np.zeros((len(x), out, rows, columns))
    each = out // groups
    for g in range(groups):
        part, kernel = x[:, g * inner : (g + 1) * inner], weight[g * each : (g + 1) * each]
        for i in range(height):
            for j in range(width):
                seen = part[:, :, i : i + stride * (rows - 1) + 1 : stride, j : j + stride * (columns - 1) + 1 : stride]
                found[:, g * each : (g + 1) * each] += np.einsum("nchw,oc->nohw", seen, kernel[:, :, i, j])
    return found if bias is None else found + bias[:, None, None]


def norm(x, state, name):
    """Batch normalisation with the running statistics of a file."""
    shape = (-1, *(1,) * (x.ndim - 2))
    mean, var, weight, bias = (
        state[f"{name}.{part}"].reshape(shape) for part in ("running_mean", "running_var", "weight", "bias")
    )
    return (x - mean) / np.sqrt(var + 1e-5) * weight + bias


def pool(x, kernel, stride, padding=0):
    """The largest number of each window."""
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)), constant_values=-np.inf)
    rows, columns = ((size - kernel) // stride + 1 for size in x.shape[2:])
    windows = [
        x[:, :, i : i + stride * (rows - 1) + 1 : stride, j : j + stride * (columns - 1) + 1 : stride]
        for i in range(kernel)
        for j in range(kernel)
    ]
    return np.max(windows, axis=0)


def relu(x):
    return np.maximum(x, 0)


def linear(x, state, name):
    return x @ state[f"{name}.weight"].T + state[f"{name}.bias"]


def unit(x):
    return x / np.sqrt((x * x).sum(1, keepdims=True))


def numbers(state, prefix):
    """Numbers that follow a prefix in the names, in order."""
    return sorted({int(key[len(prefix) :].split(".")[0]) for key in state if key.startswith(prefix)})


def resnet_maps(x, state, p=""):
    """He et al. 2016: the last maps. Stages after the first halve them, in their first 3 x 3 convolution."""
    x = relu(norm(convolve(x, state[f"{p}conv1.weight"], stride=2, padding=3), state, f"{p}bn1"))
    x = pool(x, 3, 2, 1)
    for stage in (1, 2, 3, 4):
        for block in numbers(state, f"{p}layer{stage}."):
            at = f"{p}layer{stage}.{block}."
            y, strided = x, stage > 1 and block == 0
            count = 3 if f"{at}conv3.weight" in state else 2
            for k in range(1, count + 1):
                weight = state[f"{at}conv{k}.weight"]
                size = weight.shape[2]
                stride = 2 if strided and size == 3 else 1
                strided = strided and size != 3
                y = norm(convolve(y, weight, stride=stride, padding=size // 2), state, f"{at}bn{k}")
                y = relu(y) if k < count else y
            if f"{at}downsample.0.weight" in state:
                x = convolve(x, state[f"{at}downsample.0.weight"], stride=2 if stage > 1 else 1)
                x = norm(x, state, f"{at}downsample.1")
            x = relu(x + y)
    return x


def resnet(x, state, p=""):
    found = resnet_maps(x, state, p).mean((2, 3))
    return linear(found, state, f"{p}fc") if f"{p}fc.weight" in state else found


def adaptive_mean(x, size):
    """Means over size x size windows that cover the maps."""
    cuts = [[(math.floor(i * n / size), math.ceil((i + 1) * n / size)) for i in range(size)] for n in (x.shape[2:])]
    return np.stack([np.stack([x[:, :, a:b, c:d].mean((2, 3)) for c, d in cuts[1]], -1) for a, b in cuts[0]], -2)


def warpnet(x, state):
    """Maximum plus mean over places, layer normalisation without weights, a linear layer."""
    maps = resnet_maps(x, state, "Backbone.")
    pooled = maps.max((2, 3)) + maps.mean((2, 3))
    centred = pooled - pooled.mean(1, keepdims=True)
    return linear(centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5), state, "Backbone.Embedding")


def iresnet(x, state):
    """Duta et al. 2021, as insightface: normalise, convolve, normalise, PReLU, convolve, normalise."""

    def prelu(x, name):
        return np.where(x > 0, x, x * state[f"{name}.weight"][:, None, None])

    plain = state["conv1.weight"].shape[2] == 3
    x = prelu(norm(convolve(x, state["conv1.weight"], stride=1 if plain else 2, padding=1), state, "bn1"), "prelu")
    for stage in (1, 2, 3, 4):
        for block in numbers(state, f"layer{stage}."):
            at = f"layer{stage}.{block}."
            stride = 2 if block == 0 and (plain or stage > 1) else 1
            y = norm(convolve(norm(x, state, f"{at}bn1"), state[f"{at}conv1.weight"], padding=1), state, f"{at}bn2")
            y = convolve(prelu(y, f"{at}prelu"), state[f"{at}conv2.weight"], stride=stride, padding=1)
            if f"{at}downsample.0.weight" in state:
                x = convolve(x, state[f"{at}downsample.0.weight"], stride=stride)
                x = norm(x, state, f"{at}downsample.1")
            x = x + norm(y, state, f"{at}bn3")
    return norm(linear(norm(x, state, "bn2").reshape(len(x), -1), state, "fc"), state, "features")


def triangle(image, size):
    """Resize (h, w) as Pillow's bilinear filter does: weights of a triangle as wide as the scale, each axis by itself.

    Results of the first axis are rounded to whole numbers, as those of the second are.
    """
    for axis, after in ((1, size[1]), (0, size[0])):
        before = image.shape[axis]
        scale = before / after
        support = max(scale, 1)
        rows = []
        for k in range(after):
            centre = (k + 0.5) * scale
            low, high = max(0, int(centre - support + 0.5)), min(before, int(centre + support + 0.5))
            weights = np.array([max(0.0, 1 - abs((n + 0.5 - centre) / support)) for n in range(low, high)])
            part = np.take(image, range(low, high), axis)
            rows.append(np.tensordot(part, weights / weights.sum(), (axis, 0)))
        image = np.clip(np.floor(np.stack(rows, axis) + 0.5), 0, 255)
    return image
