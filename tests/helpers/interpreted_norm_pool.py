"""`python interpreted_norm_pool.py IN OUT`: group normalization, pooling and ReLU by interpreted kernels."""

import os
import sys

import torch
from interpreted_convolutions import check_interpreter


def results(compute, inputs, slopes, *rest):
    """Return outputs and the gradients by images, scales and shifts."""
    leaves = [each.clone().requires_grad_() for each in inputs]
    outputs = compute(*leaves, *rest)
    return [outputs.detach(), *torch.autograd.grad(outputs, leaves, slopes)]


def main(given: str, found: str) -> None:
    """Read cases (inputs, slopes, groups, eps, windows, values of a block) and write the kernels' results."""
    os.environ["TRITON_INTERPRET"] = "1"
    check_interpreter()
    from ddlsim.kernels import norm_relu_pool, pooled_norms

    computed = []
    for *case, pooled_norms.BLOCK in torch.load(given):
        computed.append(results(norm_relu_pool.norm_relu_pool, *case))
    torch.save(computed, found)


if __name__ == "__main__":
    main(*sys.argv[1:])
