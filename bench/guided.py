#!/usr/bin/env python3
"""What a grammar costs, and what forcing saves: README.md says what is measured.

    bench/guided.py BIN [MODEL] [TRIALS]
"""
import json
import os
import statistics
import subprocess
import sys

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
    rates = {name: {"free": [], "guided": [], "wait": []} for name in LOOSE}
    seconds = {"sampled": [], "forced": []}
    tokens = {}
    for _ in range(TRIALS):
        for name, schema in LOOSE.items():
            guided = run("--json-schema", json.dumps(schema), "--sample-forced")
            tokens[name] = guided["usage"]["completion_tokens"]
            # As many tokens, at the same positions.
            unguided = run("--max-tokens", str(tokens[name]), *free)
            rates[name]["free"].append(unguided["tokens_per_second"]["decode"])
            rates[name]["guided"].append(guided["tokens_per_second"]["decode"])
            rates[name]["wait"].append(guided["grammar"]["mask_wait_seconds"] / guided["grammar"]["masks"] * 1e6)
        for name, more in (("sampled", ["--sample-forced"]), ("forced", [])):
            answer = run("--json-schema", json.dumps(RECORD), *more)
            seconds[name].append(answer["seconds"]["decode"])
    mean = statistics.mean
    print(f"{TRIALS} trials in turns, {os.path.basename(MODEL)}")
    for name, rate in rates.items():
        print(f"{name}, {tokens[name]} tokens, tokens/s: unguided {mean(rate['free']):.1f}, guided {mean(rate['guided']):.1f}")
        print(f"  guided / unguided {mean(rate['guided']) / mean(rate['free']):.3f}; waited {mean(rate['wait']):.0f} µs a mask")
    print(f"a record of enums, seconds: sampled {mean(seconds['sampled']):.2f}, forced {mean(seconds['forced']):.2f}")
    print(f"  sampled / forced {mean(seconds['sampled']) / mean(seconds['forced']):.2f}")


main()
