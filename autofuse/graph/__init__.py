"""Graphs: types, building, checking, canonical form, digests and the reference interpreter."""

from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical, digest, group_digest, subgraph, text
from autofuse.graph.reference import Noise, evaluate, random_inputs
from autofuse.graph.types import Graph, Node, Value
from autofuse.graph.verify import verify

__all__ = [
    "Graph",
    "GraphBuilder",
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
