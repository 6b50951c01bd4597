"""Sorting, the k best, and what follows from which they are."""

from __future__ import annotations

import math

import autofuse.frontends.array_api as xp
from autofuse.frontends.array_api.array import TracedArray
from autofuse.frontends.array_api.tracer import spec, trace
from autofuse.graph.types import Graph

Array = TracedArray
# How many experts see a token.
CHOSEN = 2


def batched_sort(rows: int, length: int) -> Graph:
    """Keys f32[rows, length] of each row in order, and values f32[rows, length] in that order."""

    def fn(keys: Array, values: Array) -> dict[str, Array]:
        order = xp.argsort(keys)
        return {
            "keys": xp.take_along_axis(keys, order),
            "values": xp.take_along_axis(values, order),
        }

    each = spec((rows, length), low=-1, high=1)
    return trace(fn, each, each)


def expert_routing(tokens: int, width: int, experts: int, capacity: int) -> Graph:
    """Tokens f32[tokens, width] through the two of `experts` that score highest for each, mixed by
    softmax of these scores; each expert is a matrix and takes the first `capacity` tokens that
    choose it (Shazeer 2017).

    Inputs: x, w_gate f32[width, experts], w f32[experts, width, width]."""

    def fn(x: Array, w_gate: Array, w: Array) -> dict[str, Array]:
        scores, chosen = xp.top_k(x @ w_gate, CHOSEN)
        shares = xp.softmax(scores)
        expert = chosen.reshape(-1)
        mine = xp.arange(experts) == expert[:, None]
        before = xp.cumulative_sum(mine, axis=0) - 1
        place = xp.sum(xp.where(mine, before, 0), axis=1)
        kept = place < capacity
        slot = xp.where(kept, expert * capacity + place, experts * capacity)
        sent = xp.broadcast_to(x[:, None], (tokens, CHOSEN, width)).reshape(-1, width)
        full = xp.scatter(xp.zeros((experts * capacity, width)), slot, sent)
        made = (full.reshape(experts, capacity, width) @ w).reshape(-1, width)
        weight = xp.where(kept, shares.reshape(-1), 0.0)
        back = xp.take(made, slot, axis=0) * weight[:, None]
        return {"y": xp.sum(back.reshape(tokens, CHOSEN, width), axis=1)}

    bound = math.sqrt(3.0 / width)
    return trace(
        fn, spec((tokens, width)), spec((width, experts), low=-bound, high=bound),
        spec((experts, width, width), low=-bound, high=bound),
    )  # fmt: skip


def beam_step(batch: int, beams: int, vocabulary: int, length: int) -> Graph:
    """One step of a beam search: of all that may follow, the `beams` sequences whose log
    probabilities are highest.

    Inputs: logits f32[batch, beams, vocabulary], scores f32[batch, beams], sequences
    i32[batch, beams, length], and the position i32[] where tokens are written. Outputs: scores and
    sequences, the best first."""

    def fn(logits: Array, scores: Array, sequences: Array, position: Array) -> dict[str, Array]:
        total = (scores[:, :, None] + xp.log_softmax(logits)).reshape(batch, -1)
        best, where = xp.top_k(total, beams)
        parent, token = where // vocabulary, where % vocabulary
        kept = xp.take_along_axis(sequences, parent[:, :, None], axis=1)
        here = xp.arange(length) == position
        return {"scores": best, "sequences": xp.where(here, token[:, :, None], kept)}

    return trace(
        fn, spec((batch, beams, vocabulary), low=-4, high=4), spec((batch, beams), low=-9, high=0),
        spec((batch, beams, length), "i32", low=0, high=vocabulary - 1),
        spec((), "i32", low=length // 2, high=length - 1),
    )  # fmt: skip
