"""Graphs: types, building, checking, canonical form, digests and the reference interpreter."""

from autofuse.graph.builder import GraphBuilder
from autofuse.graph.types import Graph, Node, Value
from autofuse.graph.verify import verify

__all__ = ["Graph", "GraphBuilder", "Node", "Value", "verify"]
