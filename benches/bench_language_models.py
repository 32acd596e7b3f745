"""Local training of small GPTs on the CPU, against nanoGPT's training loop written out below, on one thread.

The smaller GPT is the one that nanoGPT's README proposes for a CPU (4 layers, 4 heads, width 128, 64 positions, batches
of 12, 65 characters; 0.82 million parameters); the larger one is twice as wide (3.2 million). Both sides train on the
same batches with AdamW, decay of matrices alone, and clipping; the trained models are equal in all bits. Unlike in
nanoGPT, the head has a bias, and does not share the embedding's weights.
"""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from ddlsim.learning.bank import keep_freed_memory
from ddlsim.learning.learner import Learner
from ddlsim.learning.optimizing.state import LocalState
from ddlsim.learning.training_inputs import draw_batches
from ddlsim.models import MODELS
from ddlsim.scenario.sections import Training

LAYERS, HEADS, TOKENS, LENGTH, BATCH, STEPS, SAMPLES, NODES = 4, 4, 65, 64, 12, 5, 120, 8
RATE, BETAS, DECAY, CLIP = 1e-3, (0.9, 0.99), 0.1, 1.0
LOOP = "nanoGPT's loop"


class Attention(nn.Module):
    """nanoGPT's CausalSelfAttention, without dropout."""

    def __init__(self, width: int):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        count, length, width = x.shape
        q, k, v = self.c_attn(x).split(width, dim=2)
        q, k, v = (each.view(count, length, HEADS, width // HEADS).transpose(1, 2) for each in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=None, dropout_p=0, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(count, length, width))


class Block(nn.Module):
    """nanoGPT's Block, without dropout."""

    def __init__(self, width: int):
        super().__init__()
        self.ln_1, self.ln_2, self.attn = nn.LayerNorm(width), nn.LayerNorm(width), Attention(width)
        self.c_fc, self.gelu, self.c_proj = nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.c_proj(self.gelu(self.c_fc(self.ln_2(x))))


class NanoGPT(nn.Module):
    """nanoGPT's GPT, without dropout and weight tying; its parameters are in the order of ddlsim's."""

    def __init__(self, width: int):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(TOKENS, width), nn.Embedding(LENGTH, width)
        self.h = nn.ModuleList(Block(width) for _ in range(LAYERS))
        self.ln_f, self.lm_head = nn.LayerNorm(width), nn.Linear(width, TOKENS)

    def forward(self, idx, targets):
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1]))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)


class Loop:
    """nanoGPT's loop of one model, which goes on from call to call."""

    def __init__(self, width: int, start: torch.Tensor, text: np.ndarray):
        self.model, self.text = NanoGPT(width), text
        nn.utils.vector_to_parameters(start.clone(), self.model.parameters())
        decays = [p for p in self.model.parameters() if p.dim() >= 2]
        others = [p for p in self.model.parameters() if p.dim() < 2]
        groups = [{"params": decays, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=RATE, betas=BETAS)

    def train(self, rng: np.random.Generator) -> torch.Tensor:
        for ix in draw_batches(rng, SAMPLES, BATCH, STEPS):
            x = torch.stack([torch.from_numpy(self.text[i * LENGTH : (i + 1) * LENGTH]) for i in ix])
            y = torch.stack([torch.from_numpy(self.text[i * LENGTH + 1 : (i + 1) * LENGTH + 1]) for i in ix])
            _, loss = self.model(x, y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        return nn.utils.parameters_to_vector(self.model.parameters()).detach()


class Nodes:
    """ddlsim's nodes, each with a text, which go on from call to call."""

    def __init__(self, width: int, texts: list[np.ndarray], threads: int = 1):
        samples = [(text[:-1].reshape(-1, LENGTH), text[1:].reshape(-1, LENGTH)) for text in texts]
        prepared = SimpleNamespace(
            num_classes=TOKENS,
            task="next_token",
            mean=np.zeros(1, np.float32),
            std=np.ones(1, np.float32),
            node_cluster=[0] * len(texts),
            node_train=samples,
            node_validation=None,
            cluster_validation=None,
            cluster_test=[samples[0]],
        )
        optimizer = {"name": "adamw", "betas": BETAS, "weight_decay": DECAY}
        keys = {"optimizer": optimizer, "optimizer_state": "kept", "learning_rate": RATE, "batch_size": BATCH}
        training = Training.model_validate({**keys, "clip_norm": CLIP, "weight_decay_on": "weights"})
        gpt = MODELS["gpt"](layers=LAYERS, heads=HEADS, width=width, tokens=TOKENS, predicts="each")
        build = lambda: gpt.build((LENGTH,), TOKENS)  # noqa: E731
        self.learner = Learner({"gpt": build}, prepared, training, torch.device("cpu"), threads, BATCH)
        self.models = [self.learner.init_models(0, whole=True)[0] for _ in texts]
        self.states = [LocalState() for _ in texts]

    def train(self) -> list[torch.Tensor]:
        for node, model in enumerate(self.models):
            rng = np.random.default_rng(node)
            found = self.learner.train_towards(node, model, STEPS, rng, None, self.states[node], None)
            self.models[node], self.states[node], _ = found
        self.learner.jobs.force_params([model[0] for model in self.models])
        return [model[0].values() for model in self.models]


@pytest.fixture
def nodes_and_loops():
    """Return a function of a width and of numbers of nodes and threads, which returns both sides after a first call."""
    keep_freed_memory()
    threads, made = torch.get_num_threads(), []
    torch.set_num_threads(1)

    def make(width: int, count: int, num_threads: int = 1):
        rng = np.random.default_rng(0)
        texts = [rng.integers(0, TOKENS, SAMPLES * LENGTH + 1) for _ in range(count)]
        nodes = Nodes(width, texts, num_threads)
        made.append(nodes.learner)
        loops = [Loop(width, nodes.models[0][0].values(), text) for text in texts]
        theirs = lambda: [loop.train(np.random.default_rng(node)) for node, loop in enumerate(loops)]  # noqa: E731
        for found, expected in zip(nodes.train(), theirs(), strict=True):
            assert torch.equal(found, expected)
        return nodes, theirs

    yield make
    torch.set_num_threads(threads)
    for learner in made:
        learner.close()


@pytest.mark.parametrize("width", [128, 256])
def bench_one_node(ratio, nodes_and_loops, width):
    nodes, loop = nodes_and_loops(width, 1)
    ratio(nodes.train, loop, LOOP, rounds=9)


def bench_eight_nodes_on_two_threads(ratio, benchmark, nodes_and_loops):
    nodes, loops = nodes_and_loops(128, NODES, 2)
    ratio(nodes.train, loops, LOOP, rounds=5)
    benchmark.extra_info["gated"] = False  # a second core is not always free


def bench_two_threads(ratio, benchmark, nodes_and_loops):
    two, _ = nodes_and_loops(128, 2, 2)
    one, _ = nodes_and_loops(128, 2, 1)
    ratio(two.train, one.train, "one thread", rounds=5)
    benchmark.extra_info["gated"] = False
