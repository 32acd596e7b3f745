"""`python interpreted_convolutions.py IN OUT`: convolutions of many models, by kernels interpreted on the host.

Triton selects its interpreter at import, so the kernels run in a separate process.
"""

import os
import sys

import torch

NO_INTERPRETER = 77
"""Exit status where Triton's interpreter cannot run a loop: one of its versions fails with newer ones of numpy."""


def gradients(conv2d, inputs, slopes, count, moves):
    """Return outputs [b, N * O, OH, OW] and the gradients by images, weights and biases if there are any."""
    leaves = [each.clone().requires_grad_() for each in inputs]
    outputs = conv2d(*leaves[:2], leaves[2] if len(leaves) > 2 else None, count, *moves)
    return [outputs.detach(), *torch.autograd.grad(outputs, leaves, slopes)]


def check_interpreter() -> None:
    """End the process if the interpreter fails without the kernels."""
    import triton
    import triton.language as tl

    @triton.jit
    def count(found, turns):
        total = tl.zeros((4,), dtype=tl.float32)
        for _turn in range(0, turns):
            total += 1
        tl.store(found + tl.arange(0, 4), total)

    found = torch.zeros(4)
    try:
        count[(1,)](found, 3)
    except Exception as error:
        sys.stderr.write(f"{error}")
        sys.exit(NO_INTERPRETER)
    assert found.eq(3).all()


def main(given: str, found: str) -> None:
    """Read cases (inputs, slopes, count, moves) and write the kernels' results."""
    os.environ["TRITON_INTERPRET"] = "1"
    check_interpreter()
    from ddlsim.kernels import grouped_conv
    from ddlsim.kernels import grouped_conv as convolving

    def kernels_alone(*arguments):
        calls = []
        kept, grouped_conv.grouped_conv2d = grouped_conv.grouped_conv2d, lambda *a: calls.append(1) or kept(*a)
        result = convolving.stacked_conv2d(*arguments)
        grouped_conv.grouped_conv2d = kept
        assert calls, "torch's own convolution was called"
        return result

    convolving._on_tensor_cores = lambda images, weights: True
    torch.save([gradients(kernels_alone, *case) for case in torch.load(given)], found)


if __name__ == "__main__":
    main(*sys.argv[1:])
