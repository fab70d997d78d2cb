#!/usr/bin/env python3
"""What a grammar costs, and what forcing saves: README.md says what is measured.

    bench/guided.py BIN [MODEL] [TRIALS]
"""
import json
import os
import subprocess
import sys
from statistics import mean, median

BIN = sys.argv[1]
MODEL = sys.argv[2] if len(sys.argv) > 2 else "SmolLM2-135M-Instruct.Q4_1"
TRIALS = int(sys.argv[3]) if len(sys.argv) > 3 else 7

# Nearly every token is a choice among many, each sampled.
LOOSE = {
    "records": {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"place": {"type": "string"}, "sentence": {"type": "string"}, "year": {"type": "integer"}},
            "required": ["place", "sentence", "year"],
            "additionalProperties": False,
        },
        "minItems": 12,
        "maxItems": 12,
    },
    # The dearest masks there are: both ends of a length are near at every token.
    "strings of bounded length": {
        "type": "array", "items": {"type": "string", "minLength": 60, "maxLength": 80}, "minItems": 8, "maxItems": 8,
    },
}
# A record as programs ask for it: names, punctuation and enums leave little to choose.
FIELDS = ["customer_identifier", "shipping_address_line", "preferred_language", "account_status", "loyalty_programme_tier",
          "notification_channel", "billing_currency", "registration_source", "marketing_permission", "priority_level"]
RECORD = {
    "type": "object",
    "properties": {name: {"enum": ["not_available", "standard_setting", "premium_setting"]} for name in FIELDS},
    "required": FIELDS,
    "additionalProperties": False,
}


def run(*more):
    command = [BIN, "run", "--json", "--raw", "--temperature", "0", "--model", MODEL,
               "--prompt", "A list of sentences about the sea, as JSON:\n", *more]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def ends(model):
    out = subprocess.run([BIN, "inspect", "--json", model], check=True, capture_output=True, text=True).stdout
    return json.loads(out)["tokenizer"]["stop_ids"]


def main():
    free = [flag for end in ends(MODEL) for flag in ("--logit-bias", f"{end}=-inf")]
    rates = {name: {"unguided": [], "guided": [], "wait": []} for name in LOOSE}
    seconds = {"sampled": [], "forced": []}
    tokens = {}
    for name, schema in LOOSE.items():
        tokens[name] = run("--json-schema", json.dumps(schema), "--sample-forced")["usage"]["completion_tokens"]
    for trial in range(TRIALS):
        for name, schema in LOOSE.items():
            # As many tokens, at the same positions; each side goes first every other time.
            sides = [("unguided", ["--max-tokens", str(tokens[name]), *free]),
                     ("guided", ["--json-schema", json.dumps(schema), "--sample-forced"])]
            for side, more in sides if trial % 2 else reversed(sides):
                answer = run(*more)
                rates[name][side].append(answer["tokens_per_second"]["decode"])
                if side == "guided":
                    wait = answer["grammar"]["mask_wait_seconds"] / answer["grammar"]["masks"]
                    rates[name]["wait"].append(wait * 1e6)
        for name, more in (("sampled", ["--sample-forced"]), ("forced", [])):
            answer = run("--json-schema", json.dumps(RECORD), *more)
            seconds[name].append(answer["seconds"]["decode"])
    print(f"{TRIALS} trials in turns, {os.path.basename(MODEL)}")
    for name, rate in rates.items():
        unguided, guided = mean(rate["unguided"]), mean(rate["guided"])
        ratios = sorted(g / u for g, u in zip(rate["guided"], rate["unguided"]))
        print(f"{name}, {tokens[name]} tokens, tokens/s: unguided {unguided:.1f}, guided {guided:.1f}")
        print(f"  guided / unguided {guided / unguided:.3f}, of each trial {ratios[0]:.3f} … {median(ratios):.3f} … {ratios[-1]:.3f}")
        print(f"  waited {mean(rate['wait']):.0f} µs a token")
    sampled, forced = mean(seconds["sampled"]), mean(seconds["forced"])
    print(f"a record of enums, seconds: sampled {sampled:.2f}, forced {forced:.2f}")
    print(f"  sampled / forced {sampled / forced:.2f}")


main()
