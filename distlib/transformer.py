"""A transformer as numbers: its parameters, and the FLOPs of training it by each convention.

The model is a GPT: L layers of width h, a feed-forward of width 4h, a vocabulary of V words whose embedding also
serves as the output head. A multiply and an add are two FLOPs; the backward pass costs twice the forward pass. D is
the number of tokens, in sequences of s tokens each. Three counts of parameters are in use: all of them, those of the
layers alone (Kaplan et al. 2020), and those that multiply each token (the layers and the output head).
"""

from dataclasses import dataclass

from distlib.domain import COUNT, NONNEGATIVE, Real, domain, whole


@domain(layers=COUNT, hidden=COUNT, vocab=COUNT, positions=whole(0), norms=whole(0))
@dataclass(frozen=True)
class Transformer:
    """L layers of width h and V words; learned positions, if any; normalisations outside the layers."""

    layers: Real
    hidden: Real
    vocab: Real
    positions: Real = 0
    norms: Real = 1


def layer_parameters(model: Transformer) -> Real:
    """12Lh²: the matrices of the layers, 4h² of attention and 8h² of feed-forward each ("non-embedding")."""
    return 12 * model.layers * model.hidden**2


def matmul_parameters(model: Transformer) -> Real:
    """12Lh² + Vh: the parameters that multiply each token; looking a word up multiplies nothing."""
    return layer_parameters(model) + model.vocab * model.hidden


def all_parameters(model: Transformer) -> Real:
    """12Lh² + 13Lh + (V + positions)·h + 2h·norms: with biases, normalisations and learned positions."""
    outside = model.vocab + model.positions + 2 * model.norms
    return layer_parameters(model) + 13 * model.layers * model.hidden + outside * model.hidden


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
    """12LhsD: the products QKᵀ and AV in training, whole score matrix; a causal count is half of it."""
    return 12 * layers * hidden * seq * tokens


@domain(seq=COUNT, tokens=NONNEGATIVE)
def model_flops(model: Transformer, seq: Real, tokens: Real) -> Real:
    """72LDh²(1 + s/(6h) + V/(12Lh)): every matrix product of training, whole score matrix, no recomputation.

    The same as 6D(12Lh² + Vh) + 12LhsD.
    """
    return training_flops(matmul_parameters(model), tokens) + attention_flops(model.layers, model.hidden, seq, tokens)


@domain(seq=COUNT, tokens=NONNEGATIVE)
def hardware_flops(model: Transformer, seq: Real, tokens: Real) -> Real:
    """96LDh²(1 + s/(6h) + V/(16Lh)): the same with full recomputation, each layer's forward pass run twice."""
    again = training_flops(layer_parameters(model), tokens) + attention_flops(model.layers, model.hidden, seq, tokens)
    return model_flops(model, seq, tokens) + again / 3
