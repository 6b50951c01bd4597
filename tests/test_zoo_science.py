"""Simulations, solvers and choices of the zoo: laws they keep, and what other libraries compute."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import linalg, ndimage, sparse, special

from autofuse.graph.reference import evaluate, random_inputs
from autofuse.graph.types import Graph
from autofuse.zoo import choices, grids, particles, solvers, zoo_graph

RNG = np.random.default_rng(17)


def outputs_of(graph: Graph, **given: np.ndarray) -> tuple[dict[str, np.ndarray], ...]:
    """Outputs and inputs by name, floats as float64; inputs that are not given are random."""
    drawn = zip(graph.input_names, random_inputs(graph, 3), strict=True)
    inputs = {name: given.get(name, array) for name, array in drawn}
    found = evaluate(graph, list(inputs.values()))
    wide = {n: a.astype(np.float64) if a.dtype.kind == "f" else a for n, a in inputs.items()}
    return dict(zip(graph.output_names, found, strict=True)), wide


def test_jacobi_iterations_solve_poissons_equation() -> None:
    n = 12
    out, ins = outputs_of(grids.jacobi(n, 500))
    inner = out["u"][1:-1, 1:-1]
    np.testing.assert_allclose(-ndimage.laplace(out["u"])[1:-1, 1:-1], ins["f"][1:-1, 1:-1],
                               atol=1e-6)  # fmt: skip
    assert np.abs(inner).max() > 0.1
    border = out["u"].copy()
    border[1:-1, 1:-1] = 0
    assert not border.any()


def test_gray_scott_against_convolution() -> None:
    out, ins = outputs_of(grids.gray_scott(10, 2))
    u, v = ins["u"], ins["v"]
    for _ in range(2):
        reaction = u * v**2
        u, v = (
            u + 0.16 * ndimage.laplace(u, mode="wrap") - reaction + 0.035 * (1 - u),
            v + 0.08 * ndimage.laplace(v, mode="wrap") + reaction - 0.1 * v,
        )
    np.testing.assert_allclose(out["u"], u, rtol=1e-6)
    np.testing.assert_allclose(out["v"], v, rtol=1e-6, atol=1e-8)


def test_shallow_water_keeps_its_mass_and_waves_travel() -> None:
    n, steps = 64, 100
    hill = 100 + np.exp(-(((np.arange(n) - 32) / 4) ** 2))[None, :].repeat(n, 0).astype(np.float32)
    calm = np.zeros((n, n), np.float32)
    out, ins = outputs_of(grids.shallow_water(n, steps), h=hill, u=calm, v=calm)
    assert out["h"].sum() == pytest.approx(ins["h"].sum(), rel=1e-9)
    # Both halves of the hill have gone sqrt(g h) t, in grid points.
    gone = np.sqrt(9.81 * 100) * steps * grids.DT_DX
    right = 32 + np.argmax(out["h"][5, 32:])
    assert right - 32 == pytest.approx(gone, abs=1.0)


def test_a_lattice_boltzmann_fluid_keeps_mass_and_momentum() -> None:
    out, ins = outputs_of(grids.lattice_boltzmann(8, 5))
    for weights in (np.ones(9), np.array(grids.EAST), np.array(grids.NORTH)):
        found, wanted = (np.tensordot(weights, f, 1).sum() for f in (out["f"], ins["f"]))
        assert found == pytest.approx(wanted, abs=1e-5)
    rest = np.array(grids.WEIGHTS, np.float32)[:, None, None] * np.ones((1, 4, 4), np.float32)
    out, _ = outputs_of(grids.lattice_boltzmann(4, 3), f=rest)
    np.testing.assert_allclose(out["f"], rest, rtol=1e-6)


def test_one_direction_of_the_lattice_moves_that_way() -> None:
    f = np.full((9, 8, 8), 0.1, np.float32)
    f[1, 4, 4] = 0.2
    out, _ = outputs_of(grids.lattice_boltzmann(8, 1), f=f)
    assert np.unravel_index(np.argmax(out["f"][1]), (8, 8)) == (4, 5)


def test_a_glider_glides_and_cells_are_born() -> None:
    cells = np.zeros((8, 8), np.uint8)
    cells[[0, 1, 2, 2, 2], [1, 2, 0, 1, 2]] = 1
    nowhere = np.full((4, 1, 2), -1, np.int32)
    out, _ = outputs_of(grids.life(8, 4, 1), cells=cells, places=nowhere)
    np.testing.assert_array_equal(out["cells"], np.roll(cells, (1, 1), (0, 1)))
    born = np.array([[[5, 6], [2, 7], [5, 6]]], np.int32)
    out, _ = outputs_of(grids.life(8, 1, 3), cells=np.zeros((8, 8), np.uint8), places=born)
    assert out["cells"].sum() == 2 and out["cells"][5, 6] == out["cells"][2, 7] == 1


def test_gravity_keeps_momentum_and_pulls_together() -> None:
    out, ins = outputs_of(particles.gravity(24))
    mass = ins["mass"]
    np.testing.assert_allclose(mass @ out["velocity"], mass @ ins["velocity"], atol=1e-6)
    place = np.array([[0, 0, 0], [1, 0, 0]], np.float32)
    still, weigh = np.zeros((2, 3), np.float32), np.array([1, 3], np.float32)
    out, _ = outputs_of(particles.gravity(2), position=place, velocity=still, mass=weigh)
    pull = particles.DT * 3 / (1 + particles.SOFTENING) ** 1.5
    np.testing.assert_allclose(out["velocity"][0], [pull, 0, 0], rtol=1e-6, atol=1e-9)


def test_deposited_charge_is_kept_and_lies_where_particles_are() -> None:
    out, ins = outputs_of(particles.deposit(300, 8))
    assert out["density"].sum() == pytest.approx(ins["charge"].sum())
    one = {"x": np.array([2.25], np.float32), "y": np.array([7.5], np.float32),
           "charge": np.array([4], np.float32)}  # fmt: skip
    out, _ = outputs_of(particles.deposit(1, 8), **one)
    wanted = np.zeros((8, 8))
    wanted[7, 2] = wanted[0, 2] = 1.5
    wanted[7, 3] = wanted[0, 3] = 0.5
    np.testing.assert_allclose(out["density"], wanted)


def test_thomas_against_a_banded_solver() -> None:
    out, ins = outputs_of(solvers.thomas(9, 16))
    for k in range(16):
        bands = np.zeros((3, 9))
        bands[0, 1:], bands[1], bands[2, :-1] = (
            ins["upper"][:-1, k], ins["diagonal"][:, k], ins["lower"][1:, k],
        )  # fmt: skip
        wanted = linalg.solve_banded((1, 1), bands, ins["right"][:, k])
        np.testing.assert_allclose(out["x"][:, k], wanted, rtol=1e-6, atol=1e-9)


def test_a_product_with_compressed_rows() -> None:
    out, ins = outputs_of(solvers.sparse_product(20, 16, 200))
    ends = np.concatenate([[0], np.sort(ins["ends"]), [200]])
    matrix = sparse.csr_array((ins["values"], ins["columns_of"], ends), (20, 16))
    np.testing.assert_allclose(out["y"], matrix @ ins["x"], atol=1e-6)
    assert len(np.unique(np.diff(ends))) > 3


def test_keplers_equation_holds() -> None:
    out, ins = outputs_of(solvers.kepler(500, 10))
    found = out["anomaly"]
    np.testing.assert_allclose(
        found - ins["eccentricity"] * np.sin(found), ins["mean"], atol=solvers.CONVERGED
    )


def test_values_follow_their_keys() -> None:
    out, ins = outputs_of(zoo_graph("batched_sort", "small"))
    order = np.argsort(ins["keys"], axis=1)
    np.testing.assert_array_equal(out["keys"], np.sort(ins["keys"], 1))
    np.testing.assert_array_equal(out["values"], np.take_along_axis(ins["values"], order, 1))


@pytest.mark.parametrize("capacity", [3, 24])
def test_routing_one_token_at_a_time(capacity: int) -> None:
    out, ins = outputs_of(choices.expert_routing(24, 8, 4, capacity))
    taken = np.zeros(4, int)
    wanted = np.zeros((24, 8))
    for token, scores in enumerate(ins["x"] @ ins["w_gate"]):
        best = np.argsort(-scores)[:2]
        for expert, share in zip(best, special.softmax(scores[best]), strict=True):
            if taken[expert] < capacity:
                wanted[token] += share * (ins["x"][token] @ ins["w"][expert])
            taken[expert] += 1
    assert (taken > capacity).any() == (capacity == 3)
    np.testing.assert_allclose(out["y"], wanted, atol=1e-6)


def test_a_beam_step_against_all_that_may_follow() -> None:
    out, ins = outputs_of(choices.beam_step(2, 3, 40, 6))
    position = int(ins["position"])
    for b in range(2):
        every = [
            (ins["scores"][b, k] + logs[token], k, token)
            for k in range(3)
            for logs in [special.log_softmax(ins["logits"][b, k])]
            for token in range(40)
        ]
        for place, (score, k, token) in enumerate(sorted(every, reverse=True)[:3]):
            assert out["scores"][b, place] == pytest.approx(score)
            wanted = ins["sequences"][b, k].copy()
            wanted[position] = token
            np.testing.assert_array_equal(out["sequences"][b, place], wanted)
