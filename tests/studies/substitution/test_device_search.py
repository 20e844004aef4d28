"""The search that the CUDA kernels keep for themselves, run on the CPU, against the others."""

from __future__ import annotations

import math

import pytest
import torch
from attention.problems import attention_text, engine_of
from cuda.waits import no_waits
from definition import features
from parameters import dtypes, weight_fns
from studies.substitution.cases import KINDS, hard_text, problem
from studies.substitution.comparing import matches, pairs, same
from studies.substitution.truth import changes
from torch.utils._python_dispatch import TorchDispatchMode

from wsfast import substitution_sensitivity
from wsfast.attention.weight_fn import WeightFn
from wsfast.engines import compiled
from wsfast.engines.engine import TORCH
from wsfast.engines.substitution_kernels import Workspace
from wsfast.maps.draws import Draws
from wsfast.results.substitution import LEADERS
from wsfast.studies.substitution import device_screen, search
from wsfast.studies.substitution.device_screen import DeviceScreen
from wsfast.studies.substitution.options import Allowed
from wsfast.studies.substitution.screen import Plan, Screen, self_scores_of
from wsfast.studies.substitution.table import CandidateTable

pytestmark = [
    pytest.mark.deep,
    pytest.mark.needs("cuda_on_cpu"),
    pytest.mark.usefixtures("cuda_on_cpu"),
]


@pytest.fixture
def begun_anew(monkeypatch):
    """The tiles that were screened the parent's way."""
    tiles = []
    see = Screen.see

    def counted(self, tile, own_score):
        tiles.append(tile)
        see(self, tile, own_score)

    monkeypatch.setattr(Screen, "see", counted)
    return tiles


def native(X, E, W, **options):
    return substitution_sensitivity(X, E, W, backend="native", **options)


# -- results --------------------------------------------------------------------------------------


@weight_fns
@dtypes
def test_order_of_random_texts(begun_anew, monkeypatch, weight_fn, normalize, dtype):
    """Against every value in float64; one tile and several."""
    for seed in range(12):
        n, d, count = 1 + 3 * seed % 7, 2 + seed % 5, 30 + 29 * seed
        X, E, W = problem(n, d, count, 100 + seed, torch.float32)
        expected = changes(X, W, E, weight_fn, normalize)
        X, E, W = (x.to(dtype) for x in (X, E, W))
        monkeypatch.setattr(search, "_COLUMNS", (96, 1024)[seed % 2])
        options = {"weight_fn": weight_fn, "normalize": normalize, "top_k": 1 + 5 * seed}
        matches(native(X, E, W, **options), expected)
    assert not begun_anew


@weight_fns
@dtypes
@pytest.mark.parametrize("kind", KINDS)
def test_hard_texts(weight_fn, normalize, dtype, kind):
    X, W, E, truth = hard_text(kind, weight_fn, normalize)
    X, E, W = (x.to(dtype) for x in (X, E, W))
    for k in (1, 9):
        result = native(X, E, W, weight_fn=weight_fn, normalize=normalize, top_k=k)
        matches(result, truth)


@weight_fns
def test_ties_stand_by_position_then_candidate(begun_anew, monkeypatch, weight_fn, normalize):
    """Equal rows of E, in tiles and blocks apart, and equal words."""
    X, E, W = problem(5, 4, 50)
    X[3] = X[1]
    E = torch.cat([E, E.flip(0), E])
    monkeypatch.setattr(search, "_COLUMNS", 96)
    options = {"weight_fn": weight_fn, "normalize": normalize}
    for dtype in (torch.float32, torch.float64):
        X, E, W = (x.float().to(dtype) for x in (X, E, W))
        expected = changes(X, W, E, **options)
        for k in (1, 9, len(X) * len(E)):
            matches(native(X, E, W, top_k=k, **options), expected)
    assert not begun_anew


@pytest.mark.parametrize("later", [70, 150], ids=["in the tile", "in a later one"])
def test_ties_that_differ(monkeypatch, later):
    """The larger of two values that count as tied does not displace the one that stands first."""
    X, E, W = problem(5, 4, 200, 5)
    E[10] = 2 * E.abs().amax(0)
    E[later] = E[10] * (1 + 3e-10)
    truth = changes(X, W, E)
    i = int(truth[:, 10].argmax())
    assert int(truth.argmax()) == 200 * i + later
    assert 1e-11 < float(truth[i, later] / truth[i, 10] - 1) < 1e-9
    monkeypatch.setattr(search, "_COLUMNS", 96)
    for k in (1, 2):
        result = native(X, E, W, top_k=k)
        assert int(result.top_candidate[0]) == int(result.best_candidate[i]) == 10
        matches(result, truth)


@dtypes
def test_choices_of_each_position(begun_anew, monkeypatch, dtype):
    """Positions that may take all, some and one; none may take the best of all."""
    X, E, W = problem(6, 5, 200, 3, torch.float32)
    table = changes(X, W, E)
    allowed = torch.rand(6, 200) > 0.5
    allowed[0], allowed[1] = True, False
    allowed[1, 17] = True
    allowed[:, table.amax(0).argmax()] = False
    X, E, W = (x.to(dtype) for x in (X, E, W))
    truth = table.masked_fill(~allowed, math.nan)
    monkeypatch.setattr(search, "_COLUMNS", 96)
    for k in (1, 8, 150):
        matches(native(X, E, W, candidates=allowed, top_k=k), truth)
    # Some candidates, positions, texts and draws.
    options = {"candidates": range(3, 200, 3), "positions": [1, 4], "top_k": 5}
    X, W = torch.stack([X, -X]), torch.stack([W, W.mT])
    result = native(X, E, W, **options)
    assert not begun_anew
    same(result, substitution_sensitivity(X, E, W, backend="torch", **options), rtol=1e-6)


def test_what_does_not_depend_on_blocks(monkeypatch):
    """Tiles, texts beside, and other positions change no bit of the result."""
    X, E, W = problem(6, 5, 300, 3, torch.float32)
    once = native(X, E, W, top_k=20)
    monkeypatch.setattr(search, "_COLUMNS", 96)
    same(native(X, E, W, top_k=20), once)
    both = native(torch.stack([-X, X]), E, W, top_k=20)
    assert torch.equal(both.top_value[1], once.top_value)
    assert torch.equal(both.top_candidate[1], once.top_candidate)


# -- begun anew -----------------------------------------------------------------------------------


@dtypes
def test_list_without_room(begun_anew, monkeypatch, dtype):
    X, E, W = problem(5, 4, 150, 1, torch.float32)
    truth = changes(X, W, E)
    X, E, W = (x.to(dtype) for x in (X, E, W))
    monkeypatch.setattr(search, "_COLUMNS", 96)
    monkeypatch.setattr(device_screen, "_ROOM_EACH", 0)
    for room, anew in ((3, 2), (0, 2), (5 * 150, 0)):
        monkeypatch.setattr(device_screen, "_ROOM", room)
        begun_anew.clear()
        matches(native(X, E, W, top_k=12), truth)
        assert len(begun_anew) == anew


def test_rows_that_leave_float32(begun_anew):
    """Squares of theirs do; they are looked at in float64, as by the other backends."""
    X, E, W = problem(4, 5, 150, 2, torch.float32)
    E[70] *= 1e7
    E[149] *= 1e12
    result = native(X, E, W, top_k=6)
    assert len(begun_anew) == 1
    expected = substitution_sensitivity(X, E, W, top_k=6, backend="reference")
    assert pairs(result) == pairs(expected)
    torch.testing.assert_close(result.top_value, expected.top_value, rtol=1e-6, atol=0)
    assert {149, 70} <= set(result.top_candidate.tolist())


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("row", [0, 100, 149])
def test_rows_that_are_no_numbers(monkeypatch, value, row):
    X, E, W = problem(4, 5, 150, 2, torch.float32)
    E[row, 3] = value
    monkeypatch.setattr(search, "_COLUMNS", 96)
    messages = set()
    for backend in ("torch", "native"):
        with pytest.raises(ValueError, match=rf"E.*\b{row}\b") as error:
            substitution_sensitivity(X, E, W, backend=backend)
        messages.add(str(error.value))
    assert len(messages) == 1
    # What is not asked for is not read.
    others = [v for v in range(150) if v != row]
    native(X, E, W, candidates=others)


def test_text_that_leaves_float32(begun_anew):
    """Then tiles are given in another dtype than the search is in."""
    X, E, W = problem(4, 5, 60, 2, torch.float32)
    X = X * 1e9
    result = native(X, E, W, top_k=3)
    assert len(begun_anew) == 1
    same(result, substitution_sensitivity(X, E, W, top_k=3, backend="torch"), rtol=1e-6)


# -- what is held ---------------------------------------------------------------------------------


def searched(X, E, W, k=1, columns=96, fn=("softmax", True)):
    """A search that has seen all of E, and the tiles."""
    text = attention_text(X, W, WeightFn(*fn), "native", 2**26)
    table = CandidateTable(E, None, E.dtype, E.device)
    plan = Plan(k, True, False, columns)
    found = DeviceScreen(text, torch.arange(len(X)), None, plan, table, Workspace(X.device))
    for tile in table.tiles(columns):
        found.see(tile, self_scores_of(tile.rows, W))
    return found


@weight_fns
@dtypes
def test_thresholds(weight_fn, normalize, dtype):
    """Never above the best pair of a position, or the k-th best of all; at the end close to it."""
    X, E, W = problem(7, 6, 400, 4, torch.float32)
    truth = changes(X, W, E, weight_fn, normalize)
    truth = truth * float(features(X.double(), W.double(), weight_fn, normalize).norm())
    X, E, W = (x.to(dtype) for x in (X, E, W))
    for k in (1, 4, 30):
        held = searched(X, E, W, k, fn=(weight_fn, normalize))._there
        best, kth = truth.amax(1), float(truth.flatten().topk(k).values[-1])
        assert bool((held.surest.double() <= best * (1 + 1e-12)).all())
        assert bool((held.surest.double() >= best * 0.99).all())
        of_pairs = held.of_pairs.double().topk(k).values
        assert float(of_pairs[-1]) <= kth * (1 + 1e-12)
        assert float(of_pairs[0]) >= 0.99 * float(best.max())
        # 49 blocks of pairs, of which one holds several of the best.
        assert float(of_pairs[-1]) >= 0.7 * kth
        of_candidates = held.of_blocks.double().sort(descending=True).values
        leading = truth.amax(0).sort(descending=True).values[: len(of_candidates)]
        assert bool((of_candidates[:7] <= leading[:7] * (1 + 1e-12)).all())
        least = torch.minimum(of_pairs[-1], of_candidates[LEADERS - 1])
        expected = held.surest.double().clamp(max=float(least)) * (1 - 1e-6)
        torch.testing.assert_close(held.threshold.double(), expected, rtol=1e-7, atol=0)


def test_thresholds_with_eight_blocks():
    """As many candidates are told to lead as are wanted."""
    X, E, W = problem(7, 6, 600, 4, torch.float32)
    held = searched(X, E, W, 2)._there
    leading = changes(X, W, E).amax(0) * float(features(X.double(), W.double()).norm())
    last = float(leading.topk(LEADERS).values[-1])
    of_candidates = float(held.of_blocks.topk(LEADERS).values[-1])
    assert 0.5 * last <= of_candidates <= last * (1 + 1e-12)
    assert float(held.threshold.max()) == pytest.approx(of_candidates, rel=1e-5)


def test_most_pairs_are_not_held():
    X, E, W = problem(7, 6, 2000, 4, torch.float32)
    found = searched(X, E, W, 5, columns=512)
    count = int(found._there.count)
    assert 7 <= count < 0.02 * 7 * 2000
    assert len(found.verified().value) <= count


def test_room_is_in_the_budget():
    """Of the text, and no more of it than there are pairs."""
    more = DeviceScreen.memory(5, 3, 4) - Screen.memory(5, 3, 4)
    assert more == (device_screen._ROOM + 3 * device_screen._ROOM_EACH) * 24
    X, E, W = problem(3, 4, 80, 0, torch.float32)
    assert len(searched(X, E, W, 2)._there.position) == 3 * 80
    X, E, W = problem(9, 4, 4000, 0, torch.float32)
    room = device_screen._ROOM + (2 + 9) * device_screen._ROOM_EACH
    assert len(searched(X, E, W, 2, 4000)._there.position) == room


@pytest.mark.parametrize("choice", ["all", "mask", "own"])
def test_no_waiting_while_the_vocabulary_is_read(choice):
    X, E, W = problem(7, 6, 400, 4, torch.float32)
    found = searched(X, E, W, 5)  # what is made once
    own = torch.arange(7) if choice == "own" else None
    allowed = Allowed(torch.rand(7, 400) > 0.5, own)
    found._allowed = None if choice == "all" else allowed.at(torch.arange(7))
    with no_waits(X.device):
        for tile in found._table.tiles(96):
            found.see(tile, self_scores_of(tile.rows, W))


class _Operations(TorchDispatchMode):
    """The operations of PyTorch that are more than another view of what is there."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if not func.is_view and "empty" not in str(func):
            self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def test_launches_of_a_tile(monkeypatch):
    """Two products and five kernels, two of which go together."""
    X, E, W = problem(7, 6, 400, 4, torch.float32)
    found, kernels = searched(X, E, W, 5), []
    launch = compiled.Kernels.launch

    def counted(self, name, *arguments, **named):
        kernels.append(name)
        launch(self, name, *arguments, **named)

    monkeypatch.setattr(compiled.Kernels, "launch", counted)
    tile = next(found._table.tiles(96))
    own = self_scores_of(tile.rows, W)
    with _Operations() as operations:
        found.see(tile, own)
    assert operations.names == ["mm", "mm"]
    assert kernels == ["centre_rows", "candidate_attention", "substitution_tile"]


def draws_of(engine):
    return Draws(make=None, numbers=range(1), has_axis=False, engine=engine)


def test_when_it_is_used():
    """For the largest changes by CUDA kernels alone."""
    largest, cuda = Plan(1, True, False, 8), draws_of(engine_of("native"))
    assert search._kind(largest, cuda) is DeviceScreen
    assert search._kind(largest, draws_of(TORCH)) is Screen
    assert search._kind(largest._replace(largest=False), cuda) is Screen
    assert search._kind(largest._replace(full=True), cuda) is Screen


@pytest.mark.needs("native")
def test_not_by_the_kernels_of_the_cpu(monkeypatch):
    monkeypatch.undo()
    assert search._kind(Plan(1, True, False, 8), draws_of(engine_of("native"))) is Screen


def test_columns():
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    assert [search._columns(cpu, fitting) for fitting in (0, 7, 10**9)] == [1, 7, 1024]
    assert [search._columns(cuda, fitting) for fitting in (0, 7, 10**9)] == [1, 7, 8192]
