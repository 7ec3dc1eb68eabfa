"""What PyTorch makes of the ops of the reference device, on small random data in f64.

Writes crates/backend/tests/fixtures/ops.txt: one array per line, `name numbers...`, inputs rounded
to f32 (keys and values to f16) before anything is computed from them.

    python tools/goldens/backend_ops.py
"""

import pathlib

import torch
import torch.nn.functional as F

torch.manual_seed(7)
torch.set_default_dtype(torch.float64)
lines = []


def put(name, values):
    lines.append(" ".join([name] + [f"{v:.9g}" for v in values.flatten().tolist()]))


def random(*shape, scale=1.0):
    return (torch.randn(*shape) * scale).float().double()


x = random(3, 10, scale=2.0)
first = x
gate, up = x.chunk(2, dim=-1)
put("x", x)
put("silu", F.silu(gate) * up)
put("gelu_tanh", F.gelu(gate, approximate="tanh") * up)
put("gelu_erf", F.gelu(gate) * up)
put("relu", F.relu(gate) * up)
put("relu_squared", F.relu(gate) ** 2 * up)
put("soft_cap", 1.5 * torch.tanh(x / 1.5))
gain = random(10)
put("gain", gain)
put("norm_stored", F.rms_norm(x, (10,), gain, eps=1e-5))
put("norm_one_plus", F.rms_norm(x, (10,), 1 + gain, eps=1e-5))

# One sequence of 40 positions, 4 query heads on 2 key heads of 8 columns.
n, heads, kv_heads, dim = 40, 4, 2, 8
q = random(n, heads, dim)
k, v = (random(n, kv_heads, dim).half().double() for _ in range(2))
put("qkv", torch.cat([t.reshape(n, -1) for t in (q, k, v)], dim=-1))
inv_freq = (1 / 100 ** (torch.arange(3) / 3)).float().double()
put("inv_freq", inv_freq)
angle = torch.outer(torch.arange(n).double(), inv_freq).float().double()[:, None]
cos, sin = angle.cos() * 1.25, angle.sin() * 1.25


def halves(t):
    a, b, rest = t[..., :3], t[..., 3:6], t[..., 6:]
    return torch.cat([a * cos - b * sin, a * sin + b * cos, rest], dim=-1)


def interleaved(t):
    pairs = torch.view_as_complex(t[..., :6].reshape(n, -1, 3, 2).contiguous())
    turned = torch.view_as_real(pairs * torch.complex(cos, sin)).flatten(-2)
    return torch.cat([turned, t[..., 6:]], dim=-1)


for name, turn in [("rope_halves", halves), ("rope_interleaved", interleaved)]:
    put(name, torch.cat([t.reshape(n, -1) for t in (turn(q), turn(k), v)], dim=-1))

position = torch.arange(n)
ago = position[:, None] - position[None, :]
for name, window in [("attend", n), ("attend_window", 5)]:
    mask = (ago >= 0) & (ago < window)
    qkv = (t.transpose(0, 1) for t in (q, k, v))
    out = F.scaled_dot_product_attention(*qkv, attn_mask=mask, scale=0.5, enable_gqa=True)
    put(name, out.transpose(0, 1).reshape(n, -1))
wide = [t.repeat_interleave(heads // kv_heads, dim=1) for t in (k, v)]
scores = 2.0 * torch.tanh(torch.einsum("qhd,khd->hqk", q, wide[0]) * 0.5 / 2.0)
scores = scores.masked_fill(ago < 0, -torch.inf).softmax(dim=-1)
put("attend_soft_cap", torch.einsum("hqk,khd->qhd", scores, wide[1]).reshape(n, -1))

# Four experts of 3 inner columns, two per row.
rows, experts, inner, cols = 5, 4, 3, 6
x, router = random(rows, cols), random(rows, experts)
gate_up, down = random(experts, 2 * inner, cols), random(experts, cols, inner)
for name, values in [("moe_x", x), ("router", router), ("gate_up", gate_up), ("down", down)]:
    put(name, values)
weights, chosen = router.softmax(dim=-1).topk(2, dim=-1)
for name, weights in [
    ("moe_softmax", weights),
    ("moe_renormalised", weights / weights.sum(dim=-1, keepdim=True)),
]:
    out = torch.zeros_like(x)
    for r in range(rows):
        for weight, e in zip(weights[r], chosen[r]):
            gate, up = F.linear(x[r], gate_up[e]).chunk(2)
            out[r] += weight * F.linear(F.silu(gate) * up, down[e])
    put(name, out)
gates = random(rows, 1)
put("gates", gates)
put("add_gated", x + torch.sigmoid(gates) * x.flip(0))
put("flipped", x.flip(0))

# Last, so that nothing above draws other numbers.
bias = random(10)
put("bias", bias)
put("layer_norm", F.layer_norm(first, (10,), gain, bias, eps=1e-5))
put("layer_norm_without_bias", F.layer_norm(first, (10,), gain, eps=1e-5))
# Rows beside others that are shorter.
other = first.flip(0)[:, :4]
put("flipped_x", other)
put("joined", torch.cat([first, other], dim=-1))
positions = first.flip(1).repeat(2, 1)
put("positions", positions)
put("placed", first + positions[torch.arange(3)])
# A logit per head that its softmax counts with.
sinks = random(heads, scale=2.0)
put("sinks", sinks)
scores = torch.einsum("qhd,khd->hqk", q, wide[0]) * 0.5
scores = torch.cat([scores.masked_fill(ago < 0, -torch.inf), sinks[:, None, None].expand(-1, n, 1)], dim=-1)
put("attend_sinks", torch.einsum("hqk,khd->qhd", scores.softmax(dim=-1)[..., :-1], wide[1]).reshape(n, -1))

# The clamped activation of gpt-oss on gates and ups that take turns.
pairs = random(3, 10, scale=4.0)
put("pairs", pairs)


def clamped_swish(both):
    gate, up = both[..., ::2].clamp(max=3.0), both[..., 1::2].clamp(-3.0, 3.0)
    return (up + 1) * gate * torch.sigmoid(gate * 1.702)


put("clamped_swish", clamped_swish(pairs))

# Eight experts in four groups, with biases and corrections, chosen as DeepSeek-V3 does.
experts = 8
router, correction = random(rows, experts, scale=1.5), random(experts, scale=0.5)
gate_up, down = random(experts, 2 * inner, cols), random(experts, cols, inner)
gate_up_bias, down_bias = random(experts, 2 * inner), random(experts, cols)
for name, values in [
    ("many_router", router), ("correction", correction), ("many_gate_up", gate_up), ("many_down", down),
    ("gate_up_bias", gate_up_bias), ("down_bias", down_bias),
]:
    put(name, values)
scores = router.sigmoid()
for name, kept, divisor in [
    ("moe_sigmoid", 4, lambda s: 1.0),
    ("moe_groups", 2, lambda s: s.sum(-1, keepdim=True) + 0.25),
    ("moe_at_least", 1, lambda s: s.sum(-1, keepdim=True).clamp(min=1.25)),
]:
    merits = (scores + correction).view(rows, 4, 2)
    groups = merits.sum(-1).topk(kept, dim=-1)[1]
    left_out = torch.ones(rows, 4, dtype=torch.bool).scatter(1, groups, False)
    merits = merits.masked_fill(left_out[..., None], -torch.inf).view(rows, experts)
    chosen = merits.topk(2, dim=-1)[1]
    weights = scores.gather(1, chosen)
    weights = weights / divisor(weights) * 1.5
    out = torch.zeros(rows, cols, dtype=torch.float64)
    for r in range(rows):
        for weight, e in zip(weights[r], chosen[r]):
            hidden = clamped_swish(F.linear(x[r], gate_up[e], gate_up_bias[e]))
            out[r] += weight * F.linear(hidden, down[e], down_bias[e])
    put(name, out)

path = pathlib.Path(__file__).parents[2] / "crates/backend/tests/fixtures/ops.txt"
path.parent.mkdir(parents=True, exist_ok=True)
path.write_text("\n".join(lines) + "\n")
