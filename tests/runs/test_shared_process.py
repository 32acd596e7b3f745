"""Runs in threads, in forked processes and next to code that changes torch's defaults."""

import multiprocessing
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from torch import nn

import ddlsim


def small_run(out, **options):
    return ddlsim.run(
        "smoke",
        set={"rounds": 2, "evaluation.samples": 20, "training.local_steps": 1},
        out=out,
        progress="none",
        **options,
    )


def records(directory: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(directory.glob("*.jsonl"))}


def test_two_runs_in_two_threads_write_the_same_bytes_as_alone(tmp_path):
    names = ("dpsgd", "el")
    for name in names:
        small_run(tmp_path / name, algorithm=name)
    threads = [
        threading.Thread(target=small_run, args=(tmp_path / f"{name} in a thread",), kwargs={"algorithm": name})
        for name in names
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in names:
        assert records(tmp_path / f"{name} in a thread") == records(tmp_path / name)


def test_only_one_thread_at_a_time_draws_from_the_generators_of_torch():
    from ddlsim.learning.architecture import draw

    inside = threading.Event()

    def build():
        inside.set()
        other.join(0.2)  # the other thread must wait until this context ends
        return nn.Linear(2, 2)

    other = threading.Thread(target=lambda: inside.wait() and draw(lambda: nn.Linear(2, 2), 7))
    other.start()
    (drawn,) = draw(build, 1)
    other.join()
    (alone,) = draw(lambda: nn.Linear(2, 2), 1)
    assert torch.equal(drawn.weight, alone.weight)


@pytest.mark.parametrize(
    ("change", "restore", "named"),
    [
        (
            lambda: torch.set_default_dtype(torch.float64),
            lambda: torch.set_default_dtype(torch.float32),
            "default dtype from torch.float32 to torch.float64",
        ),
        (lambda: torch.set_grad_enabled(False), lambda: torch.set_grad_enabled(True), "gradient mode"),
    ],
)
def test_callback_changing_torch_defaults_ends_the_run(tmp_path, change, restore, named):
    class Careless(ddlsim.Callback):
        def on_round(self, completed):
            change()

    try:
        with pytest.raises(ddlsim.DdlsimError, match=f"or a callback changed torch's {named}"):
            small_run(tmp_path / "run", callbacks=[Careless()])
    finally:
        restore()


def test_wave_changing_the_default_dtype_is_an_error():
    from ddlsim.foundation.errors import DdlsimError
    from ddlsim.learning.jobs import Jobs

    jobs = Jobs(["train"], lambda kind, specs: torch.set_default_dtype(torch.float64) or [])
    try:
        with pytest.raises(DdlsimError, match="changed torch's default dtype"):
            jobs._run_wave("train")
    finally:
        torch.set_default_dtype(torch.float32)


ONLY_THE_FORK_IMPORTS_DDLSIM = """
import os, sys, torch
torch.set_num_threads(2)
torch.randn(1000, 1000).sin().sum()
if child := os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
import ddlsim
ddlsim.run("smoke", set={"rounds": 2, "evaluation.samples": 20}, out=sys.argv[1], progress="none")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.full
def test_run_ends_in_a_fork_after_torch_was_used_without_ddlsim(tmp_path):
    command = [sys.executable, "-c", ONLY_THE_FORK_IMPORTS_DDLSIM, str(tmp_path / "run")]
    subprocess.run(command, timeout=100, check=True, start_new_session=True)
    assert ddlsim.load(tmp_path / "run").status == "done"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.full
def test_run_in_a_forked_process_ends_after_its_parent_used_torch(tmp_path):
    torch.set_num_threads(2)
    try:
        torch.randn(1000, 1000).sin().sum()
        process = multiprocessing.get_context("fork").Process(target=small_run, args=(tmp_path / "run",))
        process.start()
        process.join(60)
        assert process.exitcode == 0
    finally:
        torch.set_num_threads(1)
        process.kill()
    assert ddlsim.load(tmp_path / "run").status == "done"


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(context, outputs):
        return outputs.clone()

    @staticmethod
    def backward(context, gradient):
        return 0.1 * gradient


class BehindTheHead(nn.Module):
    """A model that changes the gradients of its outputs but not their values."""

    def __init__(self, change, parts=("a", "b")):
        super().__init__()
        self.change, self.parts = change, parts
        for part, layer in zip(parts, (nn.Linear(4, 3), nn.Linear(3, 2)), strict=True):
            self.add_module(part, layer)

    def forward(self, inputs):
        core, head = map(self.get_submodule, self.parts)
        return self.change(head(core(inputs.flatten(1))))


def hooked(outputs):
    if outputs.requires_grad:
        outputs.register_hook(lambda gradient: 0.1 * gradient)
    return outputs


@pytest.mark.parametrize("change", [Scaled.apply, hooked, lambda y: 0.1 * y + (0.9 * y).detach(), torch.detach])
def test_model_changing_only_gradients_after_its_head_is_not_cut(change):
    from ddlsim.foundation.errors import ScenarioError
    from ddlsim.models.whole import UncutModel, with_core_and_head

    def build(may_be_whole, **options):
        return with_core_and_head(
            lambda: BehindTheHead(change, **options), "it", (4,), torch.float32, str, may_be_whole
        )()

    with pytest.raises(ScenarioError, match="gradients"):
        build(may_be_whole=False)
    with pytest.raises(ScenarioError, match="other gradients"):
        build(may_be_whole=True, parts=("core", "head"))
    assert isinstance(build(may_be_whole=True), UncutModel)
