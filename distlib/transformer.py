"""A transformer as numbers: its parameters, and the FLOPs of training it by each convention.

The model has L layers of width h and a vocabulary of V words. A layer is attention, with `heads` query heads and
`kv_heads` heads of keys and values, and a feed-forward of width `ffn`: two matrices, three if it is gated. In the
layers that have `experts` of them, each token passes `top_k` and the `shared` ones. A multiply and an add are two
FLOPs; the backward pass costs twice the forward pass. D is the number of tokens, in sequences of s tokens each.

Counts of parameters in use: all of them; those that are active, that is all but the experts a token does not pass;
those of the layers alone (Kaplan et al. 2020); and those that multiply each token (of the layers and the output
head). Of FLOPs: 6PD; with attention's products; a causal score matrix counted whole or half; and with what
recomputation repeats. Model FLOPs (MFU) never hold the last, hardware FLOPs (HFU) always do.
"""

from dataclasses import dataclass

import numpy as np

from distlib.domain import COUNT, FRACTION, NONNEGATIVE, POSITIVE, Domain, Real, check, domain, whole

#: What the backward pass computes again: nothing, attention's score matrix, or each layer's whole forward pass.
NONE, SELECTIVE, FULL = 0, 1, 2
SWITCH = Domain("0 or 1", lambda x: (x == 0) | (x == 1))
RECOMPUTE = Domain("0 (none), 1 (selective) or 2 (full)", lambda x: (x == NONE) | (x == SELECTIVE) | (x == FULL))


@domain(
    layers=COUNT, hidden=COUNT, vocab=COUNT, positions=whole(0), norms=whole(0), heads=COUNT, kv_heads=COUNT,
    ffn=COUNT, gated=SWITCH, biases=SWITCH, tied=SWITCH, dropout=SWITCH, experts=COUNT, top_k=COUNT,
    shared=whole(0), expert_ffn=COUNT, dense_layers=whole(0),
)  # fmt: skip
@dataclass(frozen=True)
class Transformer:
    """L layers of width h and V words; a GPT unless said otherwise. What is left None is filled in, but for `heads`:
    who needs the number of heads must give it."""

    layers: Real
    hidden: Real
    vocab: Real
    positions: Real = 0  # learned ones
    norms: Real = 1  # normalisations outside the layers
    heads: Real = None
    kv_heads: Real = None  # heads, if not grouped
    ffn: Real = None  # 4h
    gated: Real = 0  # 1: a third matrix in the feed-forward
    biases: Real = 1  # 0: neither products nor normalisations add a vector
    tied: Real = 1  # 0: the output head is not the embedding
    dropout: Real = 1  # 0: no masks are kept for the backward pass
    experts: Real = 1
    top_k: Real = 1
    shared: Real = 0  # experts that every token passes, beside the top_k
    expert_ffn: Real = None  # ffn
    dense_layers: Real = 0  # layers without experts, where others have them

    def __post_init__(self) -> None:
        given = {"kv_heads": self.heads, "ffn": 4 * self.hidden}
        for name, value in given.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        if self.expert_ffn is None:
            object.__setattr__(self, "expert_ffn", self.ffn)
        if self.heads is not None:
            check("hidden / heads", np.divide(self.hidden, self.heads), COUNT)
            check("heads / kv_heads", np.divide(self.heads, self.kv_heads), COUNT)
        check("experts − top_k", np.subtract(self.experts, self.top_k), whole(0))
        check("layers − dense_layers", np.subtract(self.layers, self.dense_layers), whole(0))

    @property
    def kv_share(self) -> Real:
        """kv_heads/heads: 1 where each head has its own keys and values."""
        return 1 if self.heads is None else np.divide(self.kv_heads, self.heads)

    @property
    def expert_layers(self) -> Real:
        """The layers that choose among experts."""
        return np.where(np.greater(self.experts, 1), np.subtract(self.layers, self.dense_layers), 0)[()]


# Parameters


def attention_parameters(model: Transformer) -> Real:
    """2h²(1 + kv_heads/heads): the four matrices of one layer's attention; 4h² where no head is shared."""
    return 2 * model.hidden**2 * (1 + model.kv_share)


def ffn_parameters(model: Transformer) -> Real:
    """(2 + gated)·h·ffn: the matrices of one layer's feed-forward, without experts; 8h² in a GPT."""
    return (2 + model.gated) * model.hidden * model.ffn


def expert_parameters(model: Transformer) -> Real:
    """(2 + gated)·h·expert_ffn: the matrices of one expert."""
    return (2 + model.gated) * model.hidden * model.expert_ffn


def _layers_with(model: Transformer, experts: Real) -> Real:
    """The layers' matrices, with that many experts (and a router, h·experts) in each layer that has them."""
    sparse = model.expert_layers
    routed = experts * expert_parameters(model) + model.hidden * model.experts
    dense = (model.layers - sparse) * ffn_parameters(model)
    return model.layers * attention_parameters(model) + dense + sparse * routed


def layer_parameters(model: Transformer) -> Real:
    """Matrices of the layers, every expert counted ("non-embedding"): L(attention + feed-forward); a GPT's 12Lh²."""
    return _layers_with(model, model.experts + model.shared)


def active_layer_parameters(model: Transformer) -> Real:
    """The same with the experts that one token passes, top_k + shared: those that multiply it; a GPT's 12Lh²."""
    return _layers_with(model, model.top_k + model.shared)


def matmul_parameters(model: Transformer) -> Real:
    """Active matrices of the layers + Vh: the parameters that multiply each token; looking a word up multiplies
    nothing."""
    return active_layer_parameters(model) + model.vocab * model.hidden


def vector_parameters(model: Transformer) -> Real:
    """Of one layer without experts: 2h(1 + biases) of two normalisations; biases of h(2 + 2·kv_heads/heads) in
    attention and of h + ffn(1 + gated) in the feed-forward; a GPT's 13h."""
    added = model.hidden * (3 + 2 * model.kv_share) + model.ffn * (1 + model.gated)
    return 2 * model.hidden * (1 + model.biases) + model.biases * added


def outside_parameters(model: Transformer) -> Real:
    """(V(2 − tied) + positions + norms(1 + biases))·h: embedding, output head, positions, final normalisation."""
    return ((2 - model.tied) * model.vocab + model.positions + model.norms * (1 + model.biases)) * model.hidden


def all_parameters(model: Transformer) -> Real:
    """All matrices and vectors of the layers + those outside; a GPT's 12Lh² + 13Lh + (V + positions)h + 2h·norms."""
    return layer_parameters(model) + model.layers * vector_parameters(model) + outside_parameters(model)


def active_parameters(model: Transformer) -> Real:
    """All parameters but the experts that a token does not pass."""
    return all_parameters(model) - layer_parameters(model) + active_layer_parameters(model)


# FLOPs


@domain(parameters=NONNEGATIVE, tokens=NONNEGATIVE)
def training_flops(parameters: Real, tokens: Real) -> Real:
    """C = 6PD: 2 FLOPs a parameter and token forward, 4 backward; attention's products are left out."""
    return 6 * parameters * tokens


@domain(parameters=NONNEGATIVE, tokens=NONNEGATIVE)
def inference_flops(parameters: Real, tokens: Real) -> Real:
    """2PD: the forward pass alone; attention's products are left out."""
    return 2 * parameters * tokens


@domain(layers=COUNT, hidden=COUNT, seq=COUNT, tokens=NONNEGATIVE)
def attention_flops(layers: Real, hidden: Real, seq: Real, tokens: Real) -> Real:
    """12LhsD: the products QKᵀ and AV in training, whole score matrix, however many heads share keys."""
    return 12 * layers * hidden * seq * tokens


def causal_attention_flops(layers: Real, hidden: Real, seq: Real, tokens: Real) -> Real:
    """6LhsD: the same, of the score matrix only the half that a causal mask leaves."""
    return attention_flops(layers, hidden, seq, tokens) / 2


def layer_flops(model: Transformer, seq: Real, tokens: Real) -> Real:
    """6D·(active matrices of the layers) + 12LhsD: training without the output head; no recomputation."""
    dense = training_flops(active_layer_parameters(model), tokens)
    return dense + attention_flops(model.layers, model.hidden, seq, tokens)


def logit_flops(model: Transformer, tokens: Real) -> Real:
    """6VhD: the output head in training."""
    return training_flops(model.vocab * model.hidden, tokens)


@domain(seq=COUNT, tokens=NONNEGATIVE)
def model_flops(model: Transformer, seq: Real, tokens: Real) -> Real:
    """C = 6D·(matrices that multiply) + 12LhsD: every matrix product, whole score matrix, no recomputation.

    Of a GPT 72LDh²(1 + s/(6h) + V/(12Lh)).
    """
    return layer_flops(model, seq, tokens) + logit_flops(model, tokens)


def causal_model_flops(model: Transformer, seq: Real, tokens: Real) -> Real:
    """C = 6D·(matrices that multiply) + 6LhsD: the same with half of the score matrix."""
    return model_flops(model, seq, tokens) - causal_attention_flops(model.layers, model.hidden, seq, tokens)


@domain(seq=COUNT, tokens=NONNEGATIVE, recompute=RECOMPUTE)
def recomputed_flops(model: Transformer, seq: Real, tokens: Real, recompute: Real) -> Real:
    """A third of `layer_flops` (full), of `attention_flops` (selective), 0 (none): forward products run again."""
    again = layer_flops(model, seq, tokens) / 3, attention_flops(model.layers, model.hidden, seq, tokens) / 3
    return np.equal(recompute, FULL) * again[0] + np.equal(recompute, SELECTIVE) * again[1]


def hardware_flops(model: Transformer, seq: Real, tokens: Real, recompute: Real = FULL) -> Real:
    """C + recomputation: what is executed, whole score matrix.

    Of a GPT with full recomputation 96LDh²(1 + s/(6h) + V/(16Lh)).
    """
    return model_flops(model, seq, tokens) + recomputed_flops(model, seq, tokens, recompute)


# Utilisation: a fraction of the dense peak, above 1 an error


@domain(flops=NONNEGATIVE, time=POSITIVE, ranks=COUNT, peak=POSITIVE)
def utilisation(flops: Real, time: Real, ranks: Real, peak: Real) -> Real:
    """FLOPs/(T·N·peak), N ranks, dense peak of one in FLOP/s. Above 100 % raises: the peak, the time or N is wrong."""
    return check("utilisation", np.divide(flops, time * ranks * peak), FRACTION)


def mfu(model: Transformer, seq: Real, tokens: Real, time: Real, ranks: Real, peak: Real) -> Real:
    """MFU = model FLOPs/(T·N·peak) of D tokens in T s: whole score matrix, no recomputation."""
    return utilisation(model_flops(model, seq, tokens), time, ranks, peak)


def causal_mfu(model: Transformer, seq: Real, tokens: Real, time: Real, ranks: Real, peak: Real) -> Real:
    """MFU with half of the score matrix: `causal_model_flops`/(T·N·peak)."""
    return utilisation(causal_model_flops(model, seq, tokens), time, ranks, peak)


def hfu(model: Transformer, seq: Real, tokens: Real, time: Real, ranks: Real, peak: Real, recompute: Real) -> Real:
    """HFU = hardware FLOPs/(T·N·peak): the same with what recomputation repeats, so never below MFU."""
    return utilisation(hardware_flops(model, seq, tokens, recompute), time, ranks, peak)


# Models of the book, as their papers and published configurations state them

GPT3 = Transformer(layers=96, hidden=12288, vocab=50257, positions=2048, heads=96)  # Brown et al. (2020)
BLOOM = Transformer(layers=70, hidden=14336, vocab=250880, norms=2, heads=112)  # tr11-176B-ml; vocabulary padded
LLAMA3_8B = Transformer(
    layers=32, hidden=4096, vocab=128256, heads=32, kv_heads=8, ffn=14336, gated=1, biases=0, tied=0, dropout=0
)  # Grattafiori et al. (2024), as are the next two
LLAMA3_70B = Transformer(
    layers=80, hidden=8192, vocab=128256, heads=64, kv_heads=8, ffn=28672, gated=1, biases=0, tied=0, dropout=0
)
LLAMA3_405B = Transformer(
    layers=126, hidden=16384, vocab=128256, heads=128, kv_heads=8, ffn=53248, gated=1, biases=0, tied=0, dropout=0
)
MIXTRAL_8X7B = Transformer(
    layers=32, hidden=4096, vocab=32000, heads=32, kv_heads=8, ffn=14336, gated=1, biases=0, tied=0, dropout=0,
    experts=8, top_k=2,
)  # fmt: skip  # Jiang et al. (2024)
