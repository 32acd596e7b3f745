"""Counts of called torch operators."""

from collections import Counter

from torch.utils._python_dispatch import TorchDispatchMode


class CountedOperators(TorchDispatchMode):
    """Counts dispatched operators in `found`, without views."""

    def __init__(self):
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if not any(each.alias_info and not each.alias_info.is_write for each in func._schema.returns):
            self.found[str(func)] += func.name() != "aten::_unsafe_view"
        return func(*args, **(kwargs or {}))
