"""Models that tests use, as their papers and published configurations state them."""

from distlib.transformer import Transformer

GPT3 = Transformer(layers=96, hidden=12288, vocab=50257, positions=2048, heads=96)  # Brown et al. (2020)
LLAMA3_8B = Transformer(
    layers=32, hidden=4096, vocab=128256, heads=32, kv_heads=8, ffn=14336, gated=1, biases=0, tied=0, dropout=0
)  # Grattafiori et al. (2024)
