"""Multipliers that turn a written quantity into SI: `5 * us`, `50 * GB`, `400 * Gbit`.

Everything inside distlib is in seconds, bytes, FLOP and watts, and in byte/s and FLOP/s. A value is converted once,
where it is written, and divided by the same multiplier where it is shown: `time / us`. A bit is an eighth of a byte,
so `400 * Gbit` is a rate of 50 GB/s. GB is 10⁹ bytes, GiB is 2³⁰ bytes: they differ by 7 %.
"""

# time, in seconds
ns, us, ms, s = 1e-9, 1e-6, 1e-3, 1.0
minute, hour, day = 60.0, 3600.0, 86400.0

# data, in bytes; a rate is the same number each second
B, KB, MB, GB, TB, PB = 1.0, 1e3, 1e6, 1e9, 1e12, 1e15
KiB, MiB, GiB, TiB = 2.0**10, 2.0**20, 2.0**30, 2.0**40
bit, Mbit, Gbit, Tbit = 1 / 8, 1e6 / 8, 1e9 / 8, 1e12 / 8

# work, in FLOP; a rate is the same number each second
MFLOP, GFLOP, TFLOP, PFLOP, EFLOP = 1e6, 1e9, 1e12, 1e15, 1e18

# power in watts, energy in joules
W, kW, MW = 1.0, 1e3, 1e6
kWh, MWh = 3.6e6, 3.6e9
