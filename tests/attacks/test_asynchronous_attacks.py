"""Attackers whose round differs from the round of the requesting node."""

import pytest
import torch

from ddlsim import runs
from ddlsim.engine.answers import AnswerService
from ddlsim.engine.packing import MessagePacker
from ddlsim.learning.learner import Learner
from ddlsim.network.messages.message import RESPONSE
from ddlsim.node.node import Node
from ddlsim.scenario import from_mapping

START = 4


def scenario(step_times_s, attack, **more):
    return from_mapping(
        {
            "rounds": 8,
            "mode": "async",
            "nodes": {"clusters": [len(step_times_s)]},
            "algorithm": {"name": "random", "sampled_peers": 2, "order": "at_once"},
            "topology": {"name": "complete"},
            "model": {"name": "mlp", "hidden": [8]},
            "data": {"name": "fashion-mnist-mini"},
            "training": {"learning_rate": 0.05, "local_steps": 2, "batch_size": 8},
            "evaluation": {"every": 8},
            "devices": {"name": "per_node", "step_times_s": step_times_s},
            "network": {"links": {"name": "uniform", "uplink_mbps": 10, "downlink_mbps": 10, "latency_ms": 20}},
            "attacks": [{"name": "sign_flip", "nodes": [0], **attack}],
            **more,
        }
    )


@pytest.fixture
def answers(monkeypatch):
    """Return per answer of node 0: its round, the requester's round, its model, and the sent model."""
    seen, published = [], []
    answer, messages = AnswerService._answer, MessagePacker.messages

    def noted(self, request):
        published[:] = [self._stores[request.receiver].answer_to(request)]
        answer(self, request)

    def sent(self, sender, receivers, round_num, kind, payload, keys=None):
        if kind == RESPONSE and sender == 0:
            own = self._members[0].node.round_num
            seen.append((own, round_num, published[0]["model"], payload["model"]))
        return messages(self, sender, receivers, round_num, kind, payload, keys)

    monkeypatch.setattr(AnswerService, "_answer", noted)
    monkeypatch.setattr(MessagePacker, "messages", sent)
    return seen


@pytest.mark.parametrize("privacy", [None, {"clip": 1.0, "noise_multiplier": 0.01}])
@pytest.mark.parametrize("own_step_s", [0.05, 0.5])
def test_attack_starts_at_the_attackers_round(tmp_path, answers, own_step_s, privacy):
    if privacy is not None:
        pytest.importorskip("opacus")
    others = 0.2
    attack = {"of": "model", "start_round": START}
    more = {} if privacy is None else {"privacy": privacy}
    runs.run(scenario([own_step_s, others, others, others], attack, **more), out=tmp_path / "run")
    apart = [(own >= START) != (asked >= START) for own, asked, _, _ in answers]
    assert sum(apart) > 3
    for own, _, *handles in answers:
        model, sent = (params.values() for params in handles)
        if own >= START:
            assert torch.equal(sent, -model)
        elif privacy is None:
            assert torch.equal(sent, model)
        else:  # noised, and not forged
            assert not torch.equal(sent, model) and (sent - model).norm() < (sent + model).norm()


@pytest.mark.parametrize(
    "algorithm",
    [
        {"name": "random", "sampled_peers": 2, "order": "at_once"},
        {"name": "dac", "variant": "facade", "sampled_peers": 2},
    ],
)
def test_attack_on_updates_knows_the_start_of_a_published_model(tmp_path, monkeypatch, algorithm):
    """Even if the attacker is in its next training when the request arrives."""
    began, forgeries, held = {}, [], []
    train, attack = Node.train, Learner.attack

    def trained(self, model, *args, **kwargs):
        event, outcome = train(self, model, *args, **kwargs)

        def take():
            made = outcome()
            began.update((own.serial, begun) for own, begun in zip(made, model, strict=True))
            held.append(made)
            return made

        return event, take

    def forged(self, attack_, own, *, start, **inputs):
        made = attack(self, attack_, own, start=start, **inputs)
        forgeries.append((own, start, made))
        return made

    monkeypatch.setattr(Node, "train", trained)
    monkeypatch.setattr(Learner, "attack", forged)
    steps = [0.1, 0.5, 0.17, 0.31, 0.2, 0.4, 0.15, 0.25]
    runs.run(scenario(steps, {"of": "update"}, algorithm=algorithm), out=tmp_path / "run")
    own_work = [(own, start, made) for own, start, made in forgeries if own.serial in began]
    assert len(own_work) > 3
    for own, start, made in own_work:
        begun = began[own.serial].values()
        assert torch.equal(start.values(), begun)
        torch.testing.assert_close(made.values(), begun - (own.values() - begun))
