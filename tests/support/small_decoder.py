"""A decoder as people write it: RMSNorm, rotary positions, causal attention, a gated MLP."""

import torch
from torch import nn
from torch.nn import functional

HEADS, WIDTH, HEAD, VOCABULARY, DEPTH = 4, 64, 16, 50, 5


class RmsNorm(nn.Module):
    """Root mean square layer normalisation."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(WIDTH) + 0.5)
        self.eps = 1e-6

    def forward(self, x):
        wide = x if x.dtype == torch.float64 else x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return wide.to(x.dtype) * self.weight


class Attention(nn.Module):
    """Causal attention with rotary positions; `eager` without torch's fused function."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.base, self.eager, self.scale = 10000.0, False, HEAD**-0.5

    def rotated(self, x):
        places = torch.arange(x.shape[-2], dtype=torch.float32)
        angles = places[:, None] * self.base ** (-torch.arange(0, HEAD, 2) / HEAD)  # [T, HEAD / 2]
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        left, right = x.chunk(2, -1)
        return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)

    def forward(self, x, mask):
        q, k, v = (
            part(x).unflatten(-1, (HEADS, HEAD)).transpose(1, 2)
            for part in (self.q, self.k, self.v)
        )
        q, k = self.rotated(q), self.rotated(k)
        seen = mask[:, None, None] & torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        seen = seen | torch.eye(x.shape[1], dtype=torch.bool)
        if self.eager:
            scores = (q @ k.mT * self.scale).masked_fill(~seen, torch.finfo(x.dtype).min)
            heads = scores.softmax(-1) @ v
        else:
            heads = functional.scaled_dot_product_attention(q, k, v, seen, scale=self.scale)
        return self.o(heads.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention and a gated MLP, each after a norm and added to the stream."""

    def __init__(self):
        super().__init__()
        self.norm, self.attention, self.norm_2 = RmsNorm(), Attention(), RmsNorm()
        self.up, self.gate = (nn.Linear(WIDTH, 2 * WIDTH, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x, mask):
        x = x + self.attention(self.norm(x), mask)
        normed = self.norm_2(x)
        return x + self.down(functional.silu(self.gate(normed)) * self.up(normed))


class Decoder(nn.Module):
    """The whole model, always with the same weights."""

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.embed = nn.Embedding(VOCABULARY, WIDTH)
            self.layers = nn.ModuleList(Block() for _ in range(DEPTH))
            self.norm = RmsNorm()
            self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
            with torch.no_grad():
                self.embed.weight *= 0.05
                self.embed.weight[:, 3] *= 30  # a dimension of outliers, as pretrained models have
        self.eval()

    def forward(self, input_ids, attention_mask):
        x, mask = self.embed(input_ids), attention_mask.bool()
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(self.norm(x))


def batch(examples=6, length=12):
    """Return token ids with padding on the right, as a tokenizer gives them."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(1, VOCABULARY, (examples, length), generator=generator)
    lengths = torch.randint(3, length + 1, (examples, 1), generator=generator)
    mask = (torch.arange(length) < lengths).long()
    return {"input_ids": ids * mask, "attention_mask": mask}
