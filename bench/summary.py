"""Reads trials, one JSON object a line, and prints means, deviations and ratios."""

import json
import os
import statistics
import sys

with open(sys.argv[1]) as file:
    trials = [json.loads(line) for line in file]
ours = [t for t in trials if "peer" not in t]
theirs = [t for t in trials if "peer" in t]

print(f"{os.path.basename(os.environ['MODEL'])}, {os.environ['THREADS']} threads, "
      f"{os.environ['TRIALS']} trials in turns, prompt {os.environ['PROMPT']}, generate {os.environ['GENERATE']}")


def show(name, trials, value, unit):
    values = [v for v in map(value, trials) if v is not None]
    if not values:
        return None
    mean = statistics.mean(values)
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    print(f"  {name:<24}{mean:9.2f} ± {spread:6.2f} {unit}")
    return mean


for part, value, unit in [
    ("prompt", lambda t: t["prompt"]["mean"], "tokens/s"),
    ("generation", lambda t: t["generation"]["mean"], "tokens/s"),
    ("load", lambda t: t["load_seconds"], "s"),
    ("peak memory", lambda t: t["peak_rss_bytes"] and t["peak_rss_bytes"] / 1e6, "MB"),
]:
    print(part)
    one = show("rushlight", ours, value, unit)
    other = show(f"llama.cpp ({theirs[0]['version']})", theirs, value, unit) if theirs else None
    if one and other:
        print(f"  {'ratio':<24}{one / other:9.2f}")
