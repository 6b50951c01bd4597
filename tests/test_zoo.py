"""Zoo workloads: they build, fit their size, and compute what plain NumPy computes."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import special

from autofuse.frontends import TraceError
from autofuse.graph.canonical import digest
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.graph.verify import verify
from autofuse.zoo import ZOO, cartpole, zoo_graph

MEMORY_BOUND = (
    "softmax", "layer_norm_gelu", "rms_norm_residual", "swiglu", "black_scholes", "adam_16",
)  # fmt: skip
MIB = 2**20
DIGESTS = Path(__file__).parent / "goldens" / "zoo_digests.json"


def outputs_of(name, seed=0):
    """Outputs by name and float64 inputs by name of a small workload."""
    graph = zoo_graph(name, "small")
    inputs = random_inputs(graph, seed)
    named = dict(zip(graph.input_names, (a.astype(np.float64) for a in inputs), strict=True))
    return dict(zip(graph.output_names, evaluate(graph, inputs), strict=True)), named


def close(found, expected, rtol=1e-6, atol=1e-9):
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol)


def layer_norm(x, gamma, beta):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * gamma + beta


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def attend(q, k, v):
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    n = q.shape[-2]
    return special.softmax(np.where(np.tri(n, dtype=bool), scores, -np.inf), axis=-1) @ v


@pytest.mark.parametrize("name", list(ZOO))
@pytest.mark.parametrize("size", ["default", "small"])
def test_every_workload_builds_and_fits_its_size(name, size):
    graph = verify(zoo_graph(name, size))
    total = sum(t.nbytes for t in graph.input_types + graph.output_types)
    if size == "small":
        assert total <= 1.01 * MIB
    elif name in MEMORY_BOUND:
        assert 64 * MIB <= total <= 130 * MIB


def test_digests_are_those_that_databases_know(request):
    """A workload with another digest has to be tuned anew: change none without a gain.

    `pytest tests/test_zoo.py --update-golden` writes them anew."""
    found = {f"{n}:{s}": digest(zoo_graph(n, s)) for n in ZOO for s in ("default", "small")}
    if request.config.getoption("--update-golden"):
        DIGESTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    assert json.loads(DIGESTS.read_text(encoding="utf-8")) == found


@pytest.mark.parametrize("name", list(ZOO))
def test_random_inputs_are_valid(name):
    outputs, _ = outputs_of(name, seed=5)
    assert all(np.isfinite(a).all() for a in outputs.values())


def test_softmax():
    out, ins = outputs_of("softmax")
    close(out["probs"], special.softmax(ins["x"], axis=-1))


def test_layer_norm_gelu():
    out, ins = outputs_of("layer_norm_gelu")
    close(out["y"], gelu(layer_norm(ins["x"], ins["gamma"], ins["beta"])))


def test_rms_norm_residual():
    out, ins = outputs_of("rms_norm_residual")
    total = ins["x"] + ins["residual"]
    close(out["sum"], total)
    scale = np.sqrt((total**2).mean(-1, keepdims=True) + 1e-6)
    close(out["normed"], total / scale * ins["weight"])


def test_swiglu():
    out, ins = outputs_of("swiglu")
    a, b = np.split(ins["x"], 2, axis=1)
    close(out["y"], a * special.expit(a) * b)


def test_black_scholes_prices_and_parity():
    out, ins = outputs_of("black_scholes")
    s, k, t, r, sigma = (ins[n] for n in ("spot", "strike", "years", "rate", "volatility"))
    d1 = (np.log(s / k) + (r + sigma**2 / 2) * t) / (sigma * np.sqrt(t))
    d2 = d1 - sigma * np.sqrt(t)
    paid = k * np.exp(-r * t)
    close(out["call"], s * special.ndtr(d1) - paid * special.ndtr(d2), atol=1e-5)
    close(out["call"] - out["put"], s - paid, atol=1e-5)


def test_adam_step_of_sixteen_tensors():
    out, ins = outputs_of("adam_16")
    shapes = {ins[f"p_{i}"].shape for i in range(16)}
    assert len(shapes) == 16 and "p_16" not in ins
    for i in range(16):
        p, g, m, v = (ins[f"{n}_{i}"] for n in "pgmv")
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        root = np.sqrt(v / ins["correction2"]) + 1e-8
        close(out[f"m_{i}"], m, atol=1e-7)
        close(out[f"v_{i}"], v)
        close(out[f"p_{i}"], p - 1e-3 * (m / ins["correction1"]) / root, atol=1e-7)


def test_mlp():
    out, ins = outputs_of("mlp")
    hidden = gelu(ins["x"] @ ins["w1"] + ins["b1"])
    close(out["y"], hidden @ ins["w2"] + ins["b2"], atol=1e-6)


def test_attention():
    out, ins = outputs_of("attention")
    close(out["y"], attend(ins["q"], ins["k"], ins["v"]), atol=1e-7)


def test_transformer_block():
    out, ins = outputs_of("transformer_block")
    x = ins["x"]
    n, d = x.shape
    qkv = layer_norm(x, ins["gamma1"], ins["beta1"]) @ ins["w_qkv"]
    q, k, v = (a.reshape(n, 4, d // 4).swapaxes(0, 1) for a in np.split(qkv, 3, axis=1))
    x = x + attend(q, k, v).swapaxes(0, 1).reshape(n, d) @ ins["w_out"]
    hidden = gelu(layer_norm(x, ins["gamma2"], ins["beta2"]) @ ins["w1"] + ins["b1"])
    close(out["y"], x + hidden @ ins["w2"] + ins["b2"], atol=1e-6)


KEY = (1234, 99)
N, STEPS = 64, 120


def initial_state():
    return np.random.default_rng(7).uniform(-0.05, 0.05, (4, N)).astype(np.float32)


def simulate(state, actions, resets):
    """The roll-out written independently, environments as columns."""
    x, xd, th, thd = state.astype(np.float64)
    reward = np.zeros(state.shape[1])
    resets_seen = 0
    for force, fresh in zip(actions, resets, strict=True):
        temp = (force + 0.05 * thd**2 * np.sin(th)) / 1.1
        acc = (9.8 * np.sin(th) - np.cos(th) * temp) / (0.5 * (4 / 3 - 0.1 * np.cos(th) ** 2 / 1.1))
        xacc = temp - 0.05 * acc * np.cos(th) / 1.1
        x, xd, th, thd = x + 0.02 * xd, xd + 0.02 * xacc, th + 0.02 * thd, thd + 0.02 * acc
        done = (np.abs(x) > 2.4) | (np.abs(th) > np.deg2rad(12))
        reward += ~done
        x, xd, th, thd = np.where(done, fresh, np.stack([x, xd, th, thd]))
        resets_seen += done.sum()
    return np.stack([x, xd, th, thd]), reward, resets_seen


def test_the_cartpole_ladder_computes_one_roll_out():
    state = initial_state()
    actions, resets = cartpole.draws(KEY, N, STEPS)
    expected, reward, resets_seen = simulate(state, actions, resets)
    assert resets_seen > N
    naive = evaluate(cartpole.cartpole_naive(N, STEPS), [np.asarray(KEY, np.uint32), state])
    norng = evaluate(cartpole.cartpole_norng(N, STEPS), [state, actions, resets])
    for final, score in (naive, norng):
        close(final, expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(score, reward)
    for make in (cartpole.cartpole_noconcat, cartpole.cartpole_unroll10):
        *final, score = evaluate(make(N, STEPS), [*state, actions, resets])
        np.testing.assert_array_equal(np.stack(final), norng[0])
        np.testing.assert_array_equal(score, norng[1])


def test_draws_are_fair_and_in_range():
    actions, resets = cartpole.draws(KEY, N, STEPS)
    assert actions.shape == (STEPS, N) and resets.shape == (STEPS, 4, N)
    assert set(np.unique(actions)) == {-10.0, 10.0} and abs(actions.mean()) < 0.5
    assert np.abs(resets).max() <= 0.05 and resets.std() > 0.02


def test_unrolling_needs_whole_tens():
    with pytest.raises(TraceError, match="multiple of 10"):
        cartpole.cartpole_unroll10(4, 15)


def loop_body(name):
    graph = zoo_graph(name, "small")
    (loop,) = (n for n in graph.nodes if n.op == "loop")
    return dict(loop.attrs)


@pytest.mark.parametrize(
    ("name", "random", "concat", "carries", "trip"),
    [
        ("cartpole_naive", 2, 1, 2, 10),
        ("cartpole_norng", 0, 1, 2, 10),
        ("cartpole_noconcat", 0, 0, 5, 10),
        ("cartpole_unroll10", 0, 0, 5, 1),
    ],
)
def test_each_rung_of_the_ladder_is_written_as_promised(name, random, concat, carries, trip):
    attrs = loop_body(name)
    ops = [n.op for n in attrs["body"].nodes]
    assert ops.count("random_bits") == random
    assert ops.count("concat") == concat
    assert (attrs["carries"], attrs["trip"]) == (carries, trip)
