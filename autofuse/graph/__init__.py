"""Graphs: types, writing, checking, canonical form, digests and the reference interpreter."""

from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical, digest, group_digest, subgraph, text
from autofuse.graph.loops import LoopWriter
from autofuse.graph.noise import Noise
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.graph.types import Graph, Node, Value
from autofuse.graph.verify import verify
from autofuse.graph.writer import GraphWriter

__all__ = [
    "Graph",
    "GraphBuilder",
    "GraphWriter",
    "LoopWriter",
    "Node",
    "Noise",
    "Value",
    "canonical",
    "digest",
    "evaluate",
    "group_digest",
    "random_inputs",
    "subgraph",
    "text",
    "verify",
]
