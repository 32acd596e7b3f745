"""Losses and predictions of one model after the other; see job_types.py for what the jobs ask."""

import numpy as np
import torch

from ddlsim.learning.backends.workers import WorkspaceOf
from ddlsim.learning.job_types import LossSpec, TestSpec, architecture_of
from ddlsim.learning.node_datasets import NodeDatasets
from ddlsim.learning.tested import Tally, Tested


@torch.no_grad()
def losses_of(job: LossSpec, workspace_of: WorkspaceOf, data: NodeDatasets, chunk: int) -> list[float]:
    """Per model the mean over batches of the batch-mean loss, in eval mode; sums in float64."""
    images, labels = data.local(job.split, job.node)
    found, core, seen = [], None, None
    for model, batches in zip(job.models, job.batches, strict=True):
        workspace = workspace_of(architecture_of(model))
        if len(model) > 1 and model[0] is core and batches is seen:
            workspace.load(model[1:], start=core.size)
        else:
            workspace.load(model)
            workspace.load_local(job.local)
            core, seen = model[0], batches
            rows = torch.from_numpy(np.concatenate(batches)).to(images.device)
            features = torch.cat([workspace.features(images[part]) for part in rows.split(chunk)])
        losses = data.loss(workspace.outputs(features, images), labels[rows], reduction="none")
        per_batch = losses.double().split([len(batch) for batch in batches])
        found.append(float(torch.stack([batch.mean() for batch in per_batch]).mean()))
    return found


@torch.no_grad()
def predictions_of(job: TestSpec, workspace_of: WorkspaceOf, data: NodeDatasets, chunk: int) -> list[Tested]:
    """What the task measures of each model, and its mean loss, on the whole evaluation set."""
    images, labels = data.evaluation(job.split, job.cluster)
    tallies = [Tally(data.task, 1, labels.device) for _ in job.models]
    for first in range(0, len(labels), chunk):
        x, y = images[first : first + chunk], labels[first : first + chunk]
        core = None
        for tally, model in zip(tallies, job.models, strict=True):
            workspace = workspace_of(architecture_of(model))
            if len(model) > 1 and model[0] is core:
                workspace.load(model[1:], start=core.size)
            else:
                workspace.load(model)
                workspace.load_local(job.local)
                core, features = model[0], workspace.features(x, job.precision)
            outputs = workspace.outputs(features, x, job.precision)
            tally.add(outputs[None], y[None], data.loss(outputs, y, reduction="sum")[None])
    return [tested for tally in tallies for tested in tally.tested()]
