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


def interpret_bfloat16() -> None:
    """Multiply bfloat16, which the interpreter holds as whole numbers, as float32."""
    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter

    dot = interpreter.InterpreterBuilder.create_dot

    def wide(handle):
        if handle.dtype.scalar != tl.bfloat16:
            return handle
        return interpreter.TensorHandle((handle.data.astype(np.uint32) << 16).view(np.float32), tl.float32)

    interpreter.InterpreterBuilder.create_dot = lambda self, a, b, *rest: dot(self, wide(a), wide(b), *rest)


def main(given: str, found: str) -> None:
    """Read cases (inputs, slopes, count, moves) and write the kernels' results in the type of the slopes."""
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

    interpret_bfloat16()
    results = []
    for case in torch.load(given):
        convolving._precision = lambda images, weights, dtype=case[1].dtype: dtype
        results.append(gradients(kernels_alone, *case))
    torch.save(results, found)


if __name__ == "__main__":
    main(*sys.argv[1:])
