"""Encoding and decoding as jobs: rows in, rows out, buffers untouched."""

import gc

import numpy as np
import pytest
import torch

from ddlsim.network.messages.compression import Float16, Int8, RandomK, TopK
from ddlsim.network.messages.encoder import encoded_bytes


def values_of(learner, params) -> torch.Tensor:
    learner.jobs.force_params([params])
    return params.values().clone()


def test_sending_computes_nothing(make_learner):
    learner = make_learner()
    trained = learner.train(0, learner.init_models(0)[0], 1, np.random.default_rng(0))
    decoded = learner.compress(Float16(), trained[0], None, 0)
    assert trained[0].row.slot is None
    assert torch.equal(values_of(learner, decoded), values_of(learner, trained[0]).half().float())


def test_bytes_follow_from_the_shapes(make_learner):
    learner = make_learner(batch_norm=True)
    parts = learner.architectures["tiny"].layout.parts
    # core: 4 x 2 x 3 x 3 + 4 of the convolution, 4 + 4 of BatchNorm; shared buffers 4 + 4; head: 144 x 3 + 3
    assert encoded_bytes(Float16(), parts["core"]) == (2 * 84, 4 * 8)
    assert encoded_bytes(Int8(), parts["model"]) == (84 + 435 + 4 * 6, 4 * 8)
    assert encoded_bytes(TopK(fraction=0.1), parts["model"]) == (8 * 52, 4 * 8)
    assert encoded_bytes(RandomK(fraction=0.1), parts["head"]) == (4 * 44 + 8, 0)


@pytest.mark.parametrize("codec", [Float16(), Int8(), TopK(), RandomK()], ids=lambda codec: type(codec).__name__)
def test_shared_buffers_arrive_unchanged(make_learner, codec):
    learner = make_learner(batch_norm=True)
    (model,), (other,) = learner.init_models(0, 2, whole=True)
    model.values()[80:84] = torch.tensor([0.1, 0.2, 0.3, 0.4])  # trained: the last tensor of the core
    model.values()[84:92] = 100_001.0  # no float16
    decoded = values_of(learner, learner.compress(codec, model, other, 0))
    assert (decoded[84:92] == 100_001).all()
    assert not torch.equal(decoded, model.values())


def test_a_wave_equals_one_by_one(make_learner):
    learner = make_learner()
    models = [model for (model,) in learner.init_models(0, 6, whole=True)]
    codecs = [Int8(), TopK(fraction=0.2), RandomK(fraction=0.2)]
    for codec in codecs:
        alone = []
        for seed, model in enumerate(models[1:]):
            alone.append(values_of(learner, learner.compress(codec, model, models[0], seed)))
        together = [learner.compress(codec, model, models[0], seed) for seed, model in enumerate(models[1:])]
        learner.jobs.run_all()
        assert all(torch.equal(one, again.values()) for one, again in zip(alone, together, strict=True))
    assert learner.jobs.waves["compression"] == ([1] * 5 + [5]) * 3


def test_a_part_without_trained_values_costs_only_its_buffers(make_learner):
    learner = make_learner()
    part = learner.architectures["tiny"].layout.parts["core"]
    nothing = type(part)(part.architecture, part.name, ())
    assert [encoded_bytes(codec, nothing) for codec in (Int8(), TopK(), RandomK())] == [(0, 0)] * 3


def test_rows_of_old_copies_are_freed(make_learner):
    learner = make_learner()
    models = [model for (model,) in learner.init_models(0, 2, whole=True)]
    copy = models[0]
    for seed in range(20):
        copy = learner.compress(TopK(), models[1], copy, seed)
        learner.jobs.run_all()
    gc.collect()
    bank = learner.rows.bank(models[0].part)
    assert bank._num_allocated - len(bank._free) == 3
