"""PTX of Triton's kernels for compute capability 9.0, compiled without a device."""

from collections import defaultdict

import pytest
import torch

TYPES = {torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.int8: "*i8"}


def record_launches(monkeypatch, module, *names):
    """Return, by kernel, a list that gets the kernel, arguments and options of each launch."""
    launches = {name: [] for name in names}
    for name, recorded in launches.items():
        kernel = getattr(module, name)
        record = lambda *a, kept=recorded, kernel=kernel, **k: kept.append((kernel, a, k))  # noqa: E731
        monkeypatch.setattr(module, name, defaultdict(lambda record=record: record))
    return launches


def hopper_programs(launches):
    """Return the PTX of recorded launches, specialized as a launch does it."""
    compiler = pytest.importorskip("triton.compiler")
    target = pytest.importorskip("triton.backends.compiler").GPUTarget("cuda", 90, 32)
    for kernel, arguments, options in launches:
        signature, constants, divisible = {}, {}, {}
        for place, (parameter, value) in enumerate(zip(kernel.params, arguments, strict=True)):
            of_one = isinstance(value, int) and value == 1 and not parameter.do_not_specialize
            if parameter.is_constexpr or of_one:
                signature[parameter.name], constants[(place,)] = "constexpr", value
                continue
            tensor, number = isinstance(value, torch.Tensor), "fp32" if isinstance(value, float) else "i32"
            signature[parameter.name] = TYPES[value.dtype] if tensor else number
            aligned = tensor and not parameter.do_not_specialize_on_alignment
            if aligned or (not tensor and number == "i32" and value % 16 == 0 and not parameter.do_not_specialize):
                divisible[(place,)] = [["tt.divisibility", 16]]
        source = compiler.ASTSource(kernel, signature, constants, divisible)
        yield compiler.compile(source, target=target, options=options).asm["ptx"]
