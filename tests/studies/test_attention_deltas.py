"""attention_deltas against scaled_dot_product_attention computed twice, and against its slope."""

from __future__ import annotations

import doctest
from functools import partial

import pytest
import torch
from torch.nn.functional import pad, scaled_dot_product_attention

import wsfast
from wsfast import attention_deltas
from wsfast.maps import scaled_dot_product

B, H, N, D, D_V, S = 2, 4, 6, 3, 5, 7


def normal(*shape):
    return torch.randn(*shape, generator=normal.generator, dtype=torch.float64)


normal.generator = torch.Generator().manual_seed(1)


def seen(*shape):
    return torch.rand(*shape, generator=normal.generator) < 0.6


def rows(count, lead=(B,), heads=H, of_keys=None):
    """Queries, keys and values of so many words."""
    of_keys = of_keys or heads
    return normal(*lead, heads, count, D), *(normal(*lead, of_keys, count, d) for d in (D, D_V))


SOME = seen(B, 1, N, N)
SOME[0, 0, 1] = False  # row 1 sees nothing, row 2 word 4 alone
SOME[0, 0, 2] = torch.arange(N) == 4
ADDED = normal(H, N, N).masked_fill(~seen(H, N, N), -torch.inf)
SINKS = normal(H)
CASES = {
    "plain": {},
    "bool": {"attn_mask": SOME},
    "padding": {"attn_mask": torch.arange(N)[None] < 4},
    "added": {"attn_mask": ADDED},
    "causal": {"is_causal": True},
    "grouped": {"enable_gqa": True},
    "saturated": {"scale": 25.0},
    "capped": {"softcap": 1.5},
    "sinks": {"sinks": SINKS},
    "large sinks": {"sinks": SINKS + 8, "is_causal": True},
    "all": {
        "attn_mask": ADDED, "scale": 9.0, "enable_gqa": True, "softcap": 20.0, "sinks": SINKS,
    },
}  # fmt: skip
cases = pytest.mark.parametrize("options", CASES.values(), ids=CASES)


def of(options, count):
    return rows(count, of_keys=2 if "enable_gqa" in options else H)


def attention(q, k, v, *, softcap=None, sinks=None, **options):
    """PyTorch's own, or what it takes for added scores where it has no such option."""
    if softcap is None and sinks is None:
        return scaled_dot_product_attention(q, k, v, **options)
    k, v = (x.repeat_interleave(q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    scores = q @ k.mT * options.get("scale", q.shape[-1] ** -0.5)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if options.get("is_causal"):
        scores = scores + torch.full_like(scores, -torch.inf).triu(1)
    scores = scores + options.get("attn_mask", 0.0)
    if sinks is not None:  # a key more, of value 0
        scores = torch.cat([scores, sinks[:, None, None].expand(*scores.shape[:-1], 1)], -1)
        k, v = pad(k, (0, 0, 0, 1)), pad(v, (0, 0, 0, 1))
    return scaled_dot_product_attention(0 * q, k, v, attn_mask=scores)


def replaced(text, new, position):
    """The text with the word at `position` replaced by the one row of `new`."""
    here = (torch.arange(text[0].shape[-2]) == position)[:, None]
    return [torch.where(here, row, x) for x, row in zip(text, new, strict=True)]


def twice(text, position, new, **options):
    """The changes, (…, H, s, n, d_v), by their definition."""
    before, count = attention(*text, **options), new[0].shape[-2]
    each = torch.as_tensor(position).expand(count)
    after = [
        attention(*replaced(text, [x[..., s : s + 1, :] for x in new], each[s]), **options)
        for s in range(count)
    ]
    return torch.stack(after, -3) - before[..., None, :, :]


def assert_exact(got, expected, text, options, tolerance=1e-12):
    """Within `tolerance` of the change, or of a thousandth of the output."""
    whole = attention(*text, **options).norm(dim=(-1, -2))[..., None]
    size = torch.maximum(expected.norm(dim=(-1, -2)), 1e-3 * whole)
    assert got.shape == expected.shape
    assert bool(((got - expected).norm(dim=(-1, -2)) <= tolerance * size).all())


# -- values ---------------------------------------------------------------------------------------


@cases
def test_is_attention_computed_twice(options):
    text, new = of(options, N), of(options, S)
    if "scale" in options:
        assert float((text[0][:, :2] @ text[1][:, :2].mT).abs().max()) * options["scale"] > 60
    for position in (4, torch.tensor([0, 5, 2, 2, 1, 4, 3])):
        expected = twice(text, position, new, **options)
        got = attention_deltas(*text, position, *new, **options)
        assert_exact(got, expected, text, options)
        norms = attention_deltas(*text, position, *new, **options, reduce="norm")
        torch.testing.assert_close(norms, got.norm(dim=(-1, -2)), rtol=1e-13, atol=0)


@cases
def test_small_changes_keep_their_digits(options):
    text, old = of(options, N), torch.arange(N)
    new = [x + 1e-12 * normal(*x.shape) for x in text]
    got = attention_deltas(*text, old, *new, **options)
    for i in range(N):
        here = [x[..., i : i + 1, :] for x in text]
        by = tuple(x[..., i : i + 1, :] - y for x, y in zip(new, here, strict=True))

        def function(*row, i=i):
            return attention(*replaced(text, row, i), **options)

        _, slope = torch.autograd.functional.jvp(function, tuple(here), by)
        assert float((got[..., i, :, :] - slope).norm()) <= 1e-9 * float(slope.norm())
        assert float(slope.norm()) > 0


@pytest.mark.parametrize("lead", [(), (2,), (2, 3)])
def test_leading_axes(lead):
    text, new = rows(N, lead), rows(S, lead)
    got = attention_deltas(*text, 1, *new)
    assert got.shape == (*lead, H, S, N, D_V)
    assert_exact(got, twice(text, 1, new), text, {})


@pytest.mark.parametrize("position", [2, torch.tensor(2), [2] * S, torch.full((S,), 2)])
def test_ways_to_say_a_position(position):
    text, new = rows(N), rows(S)
    expected = attention_deltas(*text, 2, *new)
    torch.testing.assert_close(attention_deltas(*text, position, *new), expected)


def test_one_word_alone():
    text, new = rows(1), rows(S)
    expected = (new[2] - text[2])[..., None, :]
    torch.testing.assert_close(attention_deltas(*text, 0, *new), expected, rtol=1e-14, atol=0)
    masked = attention_deltas(*text, 0, *new, attn_mask=torch.tensor([[False]]))
    assert torch.equal(masked, torch.zeros_like(expected))
    got = attention_deltas(*text, 0, *new, sinks=SINKS)
    assert_exact(got, twice(text, 0, new, sinks=SINKS), text, {"sinks": SINKS})


def test_masked_pairs_do_not_change():
    got = attention_deltas(*rows(N), 4, *rows(S), attn_mask=SOME)
    unseen = ~SOME[..., 4]
    unseen[..., 4] = False  # the word's own row
    assert bool((got.movedim(-2, 2)[unseen.expand(B, H, N)] == 0).all())
    assert bool((attention_deltas(*rows(N), 1, *rows(S), attn_mask=SOME)[0, :, :, 1] == 0).all())


def test_lowest_number_is_a_mask():
    """Where models write the lowest number for -inf."""
    text, new = rows(N), rows(S)
    lowest = torch.zeros(SOME.shape).masked_fill(~SOME, torch.finfo(torch.float32).min)
    expected = attention_deltas(*text, 4, *new, attn_mask=SOME)
    assert torch.equal(attention_deltas(*text, 4, *new, attn_mask=lowest.double()), expected)


def test_words_far_from_the_origin():
    """Values of one large common part, which no change sees."""
    text, new = ([(2**10 * x).round() / 2**10 for x in rows(count)] for count in (N, S))
    expected = attention_deltas(*text, 3, *new)
    got = attention_deltas(*text[:2], text[2] + 2.0**30, 3, *new[:2], new[2] + 2.0**30)
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("options", [{}, {"sinks": SINKS}, {"is_causal": True}])
def test_parts_give_what_the_whole_gives(options, monkeypatch):
    text, new = rows(N), rows(S)
    each = torch.tensor([0, 5, 2, 2, 1, 4, 3])
    for position, reduce in ((each, None), (2, "norm"), (each, "norm")):
        function = partial(attention_deltas, *text, position, *new, reduce=reduce, **options)
        monkeypatch.undo()
        expected = function()
        for at_once in (1, 3 * B * H * N * D_V):
            monkeypatch.setattr(scaled_dot_product, "_AT_ONCE", at_once)
            torch.testing.assert_close(function(), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float32, 1e-6), (torch.float16, 2e-3), (torch.bfloat16, 1e-2)],
)
@pytest.mark.parametrize("scale", [None, 25.0])
def test_dtypes(dtype, tolerance, scale):
    text, new = ([x.to(dtype) for x in rows(count)] for count in (N, S))
    exact = [[x.double() for x in some] for some in (text, new)]
    with torch.autocast("cpu"):
        got = attention_deltas(*text, 3, *new, scale=scale)
        norms = attention_deltas(*text, 3, *new, scale=scale, reduce="norm")
    assert got.dtype == norms.dtype == dtype
    expected = twice(exact[0], 3, exact[1], scale=scale)
    assert_exact(got.double(), expected, exact[0], {"scale": scale}, tolerance)
    expected = expected.norm(dim=(-1, -2)).to(dtype)
    torch.testing.assert_close(norms, expected, rtol=tolerance, atol=tolerance)


# -- derivatives and transforms -------------------------------------------------------------------


def smooth(*tensors, mask=None, **options):
    *tensors, mask, sinks = tensors
    return attention_deltas(
        *tensors[:3], [0, 2, 2], *tensors[3:], attn_mask=mask, sinks=sinks, **options
    )


@pytest.mark.parametrize("reduce", [None, "norm"])
@pytest.mark.parametrize("options", [{}, {"softcap": 1.5}, {"enable_gqa": True}], ids=str)
def test_gradients(options, reduce):
    of_keys = 1 if options.get("enable_gqa") else 2
    text, new = ([*rows(count, (), 2, of_keys)] for count in (4, 3))
    mask = normal(2, 4, 4)
    mask[:, 1] = mask[:, 0, 2] = -torch.inf  # a row that sees nothing
    inputs = [x.requires_grad_() for x in (*text, *new, mask, normal(2))]
    function = partial(smooth, reduce=reduce, **options)
    inputs[-2] = mask.detach()  # differences of -inf are none
    assert torch.autograd.gradcheck(function, inputs, fast_mode=True)
    assert torch.autograd.gradgradcheck(function, inputs, fast_mode=True)
    mask = normal(4, 4).requires_grad_()
    inputs = [*(x.detach() for x in inputs[:-2]), mask, None]
    assert torch.autograd.gradcheck(function, inputs, fast_mode=True)


@pytest.mark.parametrize("scale", [0.5, 2000.0], ids=["flat", "saturated"])
def test_gradients_where_words_tie(scale):
    """Equal keys lead their rows together; new rows are the old ones."""
    q, k, v = (x[:, :1].expand(-1, 4, -1) for x in rows(4, (), 1))
    v = v + normal(1, 4, 1)
    new = [x[:, :2] for x in (q, k, v)]
    inputs = [x.clone().requires_grad_() for x in (q, k, v, *new)]

    def function(*rows):
        return attention_deltas(*rows[:3], [0, 1], *rows[3:], scale=scale, is_causal=True)

    def defined(*rows):
        return twice(rows[:3], torch.tensor([0, 1]), rows[3:], scale=scale, is_causal=True)

    direction = normal(1, 2, 4, D_V)
    got = torch.autograd.grad((function(*inputs) * direction).sum(), inputs)
    expected = torch.autograd.grad((defined(*inputs) * direction).sum(), inputs)
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_vmap_over_texts_positions_and_masks():
    text, new = rows(N), rows(S)
    positions, masks = torch.tensor([3, 0]), seen(B, N, N)
    options = {"sinks": SINKS, "softcap": 2.0}

    def function(q, k, v, at, *new, mask):
        return attention_deltas(q, k, v, at, *new, attn_mask=mask, **options)

    got = torch.vmap(lambda *x: function(*x[:-1], mask=x[-1]))(*text, positions, *new, masks)
    for b in range(B):
        one, new_one = ([x[b] for x in some] for some in (text, new))
        expected = function(*one, int(positions[b]), *new_one, mask=masks[b])
        torch.testing.assert_close(got[b], expected)
    with pytest.raises(ValueError, match="position must be from 0 to 5"):
        torch.vmap(lambda at: attention_deltas(*text, at, *new))(torch.tensor([0, 6]))


@pytest.mark.deep
@pytest.mark.parametrize("position", [1, torch.tensor([1, 0, 5, 2, 2, 3, 4])], ids=["one", "each"])
def test_compiled_is_one_graph(position):
    torch.compiler.reset()
    inputs = [x.requires_grad_() for x in (*rows(N), *rows(S))]

    def function(*x):
        x = [2 * one for one in x]
        return attention_deltas(*x[:3], position, *x[3:], softcap=2.0, is_causal=True, sinks=SINKS)

    got = torch.compile(function, fullgraph=True, backend="aot_eager")(*inputs)
    torch.testing.assert_close(got, function(*inputs))
    slopes = [torch.autograd.grad(x.sum(), inputs) for x in (got, function(*inputs))]
    for one, other in zip(*slopes, strict=True):
        torch.testing.assert_close(one, other)


# -- in a pipeline --------------------------------------------------------------------------------


def test_examples_of_the_docstring():
    (examples,) = doctest.DocTestFinder(recurse=False).find(attention_deltas, globs={})
    assert len(examples.examples) > 15
    assert doctest.DocTestRunner().run(examples).failed == 0


def test_layout_of_transformer_lens():
    """(batch, n, heads, d_head), as `hook_q`, `hook_k`, `hook_v` and `hook_z` are."""
    text, new = normal(3, B, N, H, D), normal(3, B, S, H, D)

    def z(q, k, v):
        scores = torch.einsum("bihd,bjhd->bhij", q, k) / D**0.5
        return torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), v)

    change = attention_deltas(
        *(x.transpose(1, 2) for x in text), 3, *(x.transpose(1, 2) for x in new)
    ).permute(2, 0, 3, 1, 4)
    for s in range(S):
        moved = text.clone()
        moved[:, :, 3] = new[:, :, s]
        torch.testing.assert_close(change[s], z(*moved) - z(*text), rtol=1e-12, atol=1e-14)


# -- errors ---------------------------------------------------------------------------------------

TEXT, NEW = rows(N), rows(S)
ARGUMENTS = dict(zip(("query", "key", "value"), TEXT, strict=True)) | {"position": 1}
ARGUMENTS |= dict(zip(("new_query", "new_key", "new_value"), NEW, strict=True))
NAN = TEXT[1].clone()
NAN[0, 0, 0, 0] = torch.nan
FULL = torch.ones(N, N, dtype=torch.bool)


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"query": TEXT[0].numpy()}, TypeError, "query must be a torch.Tensor, got ndarray"),
        ({"key": TEXT[1].float()}, TypeError, "key must have the dtype of query"),
        ({"value": TEXT[2].to("meta")}, ValueError, "value must be on the device of query, cpu"),
        ({"query": TEXT[0].long()}, TypeError, "query must hold real floating-point numbers"),
        ({"key": NAN}, ValueError, r"key must be finite, got nan at index \(0, 0, 0, 0\)"),
        ({"query": TEXT[0][0, 0]}, ValueError, r"query must have shape \(..., H, n, d_k\)"),
        ({"key": TEXT[1][..., :2]}, ValueError, r"key must have shape \(2, 4, 6, 3\)"),
        ({"key": TEXT[1][:, :2]}, ValueError, r"key must have shape \(2, 4, 6, 3\)"),
        ({"value": TEXT[2][:1]}, ValueError, r"value must have shape \(2, 4, 6, 5\)"),
        ({"value": TEXT[2][..., :0]}, ValueError, "value must have shape .* d_v >= 1"),
        ({"new_query": NEW[0][:, :, :0]}, ValueError, "new_query must have shape .* s >= 1"),
        ({"new_key": NEW[1][:, :, :1]}, ValueError, r"new_key must have shape \(2, 4, 7, 3\)"),
        ({"new_value": NEW[2][..., :1]}, ValueError, r"new_value must have shape \(2, 4, 7, 5\)"),
        (
            {"enable_gqa": True, "key": TEXT[1][:, :3]},
            ValueError,
            "key must have heads that divide the 4 of query, got 3",
        ),
        ({"position": 6}, ValueError, "position must be from 0 to 5, got 6"),
        ({"position": -1}, ValueError, "position must be from 0 to 5, got -1"),
        ({"position": 1.0}, TypeError, "position must be an integer"),
        ({"position": [1, 2]}, ValueError, "position must hold 7 positions"),
        ({"position": [0] * 6 + [6]}, ValueError, r"position\[6\] must be from 0 to 5, got 6"),
        ({"position": torch.tensor([1.0])}, TypeError, "position must be int64"),
        ({"position": torch.tensor([1, 2])}, ValueError, r"position must have shape \(\) or"),
        ({"position": torch.full((S,), 6)}, ValueError, "position must be from 0 to 5, got"),
        ({"attn_mask": FULL.tolist()}, TypeError, "attn_mask must be a torch.Tensor, got list"),
        ({"attn_mask": FULL.float()}, TypeError, "attn_mask must be bool or have the dtype"),
        ({"attn_mask": FULL[:, :2]}, ValueError, r"attn_mask must broadcast to \(2, 4, 6, 6\)"),
        ({"attn_mask": FULL.to("meta")}, ValueError, "attn_mask must be on the device"),
        ({"attn_mask": FULL * torch.nan}, TypeError, "attn_mask must be bool or have the dtype"),
        ({"attn_mask": FULL.double() * torch.inf}, ValueError, "attn_mask must be finite, got inf"),
        ({"attn_mask": FULL, "is_causal": True}, ValueError, "attn_mask must be None where"),
        ({"is_causal": 1}, TypeError, "is_causal must be True or False"),
        ({"softcap": 0}, ValueError, "softcap must be greater than 0"),
        ({"softcap": -1.0}, ValueError, "softcap must be finite and at least 0"),
        ({"scale": "1"}, TypeError, "scale must be a number"),
        ({"sinks": SINKS[:2]}, ValueError, r"sinks must have shape \(4,\), got \(2,\)"),
        ({"reduce": "sum"}, ValueError, "reduce must be None or 'norm', got 'sum'"),
    ],
)
def test_errors(wrong, error, message):
    with pytest.raises(error, match=message):
        attention_deltas(**(ARGUMENTS | wrong))


def test_is_public():
    assert wsfast.attention_deltas is attention_deltas
