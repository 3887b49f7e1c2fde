"""Break a module of distlib, one constant or sign at a time, and report what no test notices.

    python tests/mutate.py collectives

A number grows by 2 % (a compared or indexing one, and 0, by more), + and − change places, so do × and ÷, min and max,
floor and ceiling, > and ≤, and a minus sign goes. Each mutant runs in a fork of a process that has passed all tests,
so that what they have worked out without the module (the played algorithms) is there. Ends with 1 if a mutant lives.
"""

import ast
import contextlib
import importlib
import inspect
import io
import itertools
import os
import signal
import sys
import time
import warnings
from pathlib import Path

from hypothesis import Phase, settings

settings.register_profile("mutate", deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate])
ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
#: The tests of a module, if not test_<module> alone.
TESTS = {"collectives": ["test_collectives", "test_play"], "estimate": ["test_estimate", "test_published_steps"]}
#: Lines (and changes, where not all) that no test can notice, by what they hold and why.
IMMATERIAL = [
    ("lambda a, b: [", "", "where the search for a fit starts; it ends at the same constants"),
    ("0.01 * _starts(", "0.01", "where the search for a refit starts"),
    ("interval, 1, 0.0, write, 0.0, restart", "0.0", "the share that near copies survive, where there are none"),
    ("np.ceil(work / interval - 1e-9)", "", "room for rounding when the work is a whole number of segments"),
    ("np.max(terms[..., -1]) < 1e-15", "", "where a sum of vanishing terms ends"),
    ("step: float = 1e-7", "1e-07", "the step of a numerical slope"),
    ("resamples: int = 200, seed: int = 11", "200", "how many resamples, a matter of precision"),
    ("resamples: int = 200, seed: int = 11", "11", "the seed"),
    ("half = (np.sqrt(2 * np.log(count)) + 9) / 2", "2 →", "how far beyond the largest of N the quadrature goes"),
    ("half = (np.sqrt(2 * np.log(count)) + 9) / 2", "9 →", "likewise"),
    ("x = half * (nodes + 1)", "Add →", "the integrand is even"),
    ("np.linalg.norm(design, axis=0)", "0 →", "an axis"),
    ("MASKED = -1e30", "1e+30", "any score so low that its exponential is 0"),
    ("drawn | {name: 1 + drawn[name]", "Add", "the sign of a random draw"),
    ("for array in arrays], Link(0.0, 1.0))", "", "a link, where bytes alone are counted"),
    ("least_squares(logs, start, bounds=(1e-2, 1)", "", "bounds and end of a search"),
    ("wide, moved = tokens * model.ffn, 0.0", "0.0", "some hundredths of a byte"),
    ("count = int(implied[0])", "", "where both ends of the range are the same"),
    ("and numbers >= 5", "5 →", "how many numbers make a line look like a damaged row"),
    ("algbw - 0.005, 1e-9)", "1e-09", "keeps a rate of zero from dividing"),
    ("max(time - half_time, 1e-9)", "1e-09", "likewise"),
    ("room[best] = 0", "0 →", "less than one node is none"),
    ("chances(r) @ counts - mean, 0.0, 1e6", "", "where the search for a root starts and ends"),
    ("tail = r ** np.arange(counts.size - 1.0)", "", "a tail is normalised"),
    ("gpu_time, -0.999, 0.999", "", "likewise"),
    ("leaves = home != np.roll(home, -1)", "−x", "a ring enters a leaf as often as it leaves it"),
    ("(job.interval + job.write) + 1e-9)", "1e-09", "room for rounding"),
    ("self.usage = dict.fromkeys(self.shares, 0.0)", "0.0", "0.02 GPU-seconds are nothing"),
    ("self.usage[account] * kept + gained * held", "Add", "only the accounts' ratios count"),
    ("self.half_life / math.log(2) * (1 - kept)", "2 →", "likewise"),
    ("self.half_life / math.log(2) * (1 - kept)", "Div", "likewise"),
    ("if total else 1.0", "1.0", "the same for all"),
    ("factor * rest / job.interval - 1e-9)", "1e-09", "room for rounding"),
    (".draw(self.rng, 1)[0]", "1 →", "how many are drawn of which the first is taken"),
    ("held.get(job.name, 0) + 1", "0 →", "0.02 of a worker is none"),
    ("submit = np.cumsum(rng.exponential(1.0, count))", "1.0", "the load sets the scale"),
    ("nodes, each = np.maximum(1, gpus // site.gpus)", "1 →", "made whole below"),
    ("for job in coming[:1]] + [end for end, _ in running[:1]]", "1 →", "the first is the least"),
    ("math.sqrt(1 - rho**2) * other", "Add", "a normal variable is as often negative"),
]
SWAPS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Gt: ast.LtE, ast.LtE: ast.Gt}
NAMES = {"minimum": "maximum", "maximum": "minimum", "ceil": "floor", "floor": "ceil"}
LONGEST = 60  # seconds that a mutant may run: one that hangs is noticed


def is_number(node):
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def mutants(source):
    """(line, what changed, tree) of each mutant."""
    tree = ast.parse(source)
    coarse = {id(part) for node in ast.walk(tree) if isinstance(node, ast.Compare | ast.Subscript)
              for part in ast.walk(node) if is_number(part)}  # fmt: skip
    for node in ast.walk(tree):
        if is_number(node):
            value = node.value
            node.value = value + 1 if id(node) in coarse else value * 1.02 or 0.02
            yield node.lineno, f"{value} → {node.value}", tree
            node.value = value
        elif isinstance(node, ast.BinOp) and type(node.op) in SWAPS:
            op, node.op = node.op, SWAPS[type(node.op)]()
            yield node.lineno, f"{type(op).__name__} → {type(node.op).__name__}", tree
            node.op = op
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            op, node.op = node.op, ast.UAdd()
            yield node.lineno, "−x → x", tree
            node.op = op
        elif isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
            op, node.ops[0] = node.ops[0], SWAPS[type(node.ops[0])]()
            yield node.lineno, f"{type(op).__name__} → {type(node.ops[0]).__name__}", tree
            node.ops[0] = op
        elif isinstance(node, ast.Attribute) and node.attr in NAMES:
            name, node.attr = node.attr, NAMES[node.attr]
            yield node.lineno, f"{name} → {node.attr}", tree
            node.attr = name


def calls(module):
    """Each test of a module that needs no fixture, once per parameter: (name, function without arguments)."""
    for name, function in list(vars(module).items()):
        if not name.startswith("test_") or not callable(function):
            continue
        marks = getattr(function, "pytestmark", [])
        tables = [mark.args for mark in marks if mark.name == "parametrize"]
        columns = [names.replace(" ", "").split(",") if isinstance(names, str) else list(names) for names, _ in tables]
        fixtures = set(inspect.signature(function).parameters) - set(itertools.chain(*columns))
        if fixtures or any(mark.name == "slow" for mark in marks):
            continue
        for number, rows in enumerate(itertools.product(*(values for _, values in tables))):
            given = {}
            for names, row in zip(columns, rows, strict=True):
                row = getattr(row, "values", row) if type(row).__name__ == "ParameterSet" else row
                given |= dict(zip(names, row if len(names) > 1 else [row], strict=True))
            yield f"{module.__name__}.{name}[{number}]", lambda function=function, given=given: function(**given)


def survives(name, tree, tests, order):
    """Whether every test passes with the mutant in place of the module; in a fork."""
    child = os.fork()
    if child == 0:
        signal.alarm(LONGEST)
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                module = sys.modules[f"distlib.{name}"]
                exec(compile(tree, module.__file__, "exec"), vars(module))
                again = {}
                for test in tests:
                    again |= dict(calls(importlib.reload(test)))
                for label in order:
                    again[label]()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def main(name):
    source = (ROOT / "distlib" / f"{name}.py").read_text(encoding="utf-8")
    importlib.import_module(f"distlib.{name}")
    tests = [importlib.import_module(test) for test in TESTS.get(name, [f"test_{name}"])]
    warnings.simplefilter("error")  # as in pyproject.toml
    settings.load_profile("mutate")
    seconds = {}
    for test in tests:
        for label, call in calls(test):
            call()  # once to fill what is kept, once to see how long it then takes
            start = time.perf_counter()
            call()
            seconds[label] = time.perf_counter() - start
    order = sorted(seconds, key=seconds.get)
    assert survives(name, ast.parse(source), tests, order), f"{name} itself must pass in a fork"
    count, alive, lines = 0, 0, source.splitlines()
    for line, change, tree in mutants(source):
        text = lines[line - 1]
        if any(held in text and change.startswith(what) for held, what, _ in IMMATERIAL):
            continue
        count += 1
        if survives(name, tree, tests, order):
            alive += 1
            print(f"unnoticed: distlib/{name}.py:{line}: {change}    {text.strip()}", flush=True)
    print(f"{name}: {count} mutants, {len(order)} tests, {alive} unnoticed")
    return alive or not count


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1])))
