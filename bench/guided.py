#!/usr/bin/env python3
"""What a grammar costs, and what forcing saves: README.md says what is measured.

    bench/guided.py BIN [MODEL] [TRIALS]
"""
import json
import statistics
import subprocess
import sys

BIN = sys.argv[1]
MODEL = sys.argv[2] if len(sys.argv) > 2 else "SmolLM2-135M-Instruct.Q4_1"
TRIALS = int(sys.argv[3]) if len(sys.argv) > 3 else 7

# Long and loose: nearly every token is a choice among many.
LOOSE = {"type": "array", "items": {"type": "string", "maxLength": 80}, "minItems": 12}
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
    rates = {"free": [], "guided": []}
    seconds = {"sampled": [], "forced": []}
    masks = []
    for _ in range(TRIALS):
        guided = run("--json-schema", json.dumps(LOOSE), "--sample-forced")
        # As many tokens, at the same positions.
        unguided = run("--max-tokens", str(guided["usage"]["completion_tokens"]), *free)
        rates["free"].append(unguided["tokens_per_second"]["decode"])
        rates["guided"].append(guided["tokens_per_second"]["decode"])
        masks.append(guided["grammar"]["mask_wait_seconds"] / guided["grammar"]["masks"] * 1e6)
        for name, more in (("sampled", ["--sample-forced"]), ("forced", [])):
            answer = run("--json-schema", json.dumps(RECORD), *more)
            seconds[name].append(answer["seconds"]["decode"])
    mean = statistics.mean
    print(f"{TRIALS} trials in turns, {MODEL}")
    print(f"decode of {guided['usage']['completion_tokens']} tokens, tokens/s: unguided {mean(rates['free']):.1f}, guided without forcing {mean(rates['guided']):.1f}")
    print(f"  guided / unguided {mean(rates['guided']) / mean(rates['free']):.3f}; waited {mean(masks):.0f} µs a mask")
    print(f"a record, seconds: sampled {mean(seconds['sampled']):.2f}, forced {mean(seconds['forced']):.2f}")
    print(f"  sampled / forced {mean(seconds['sampled']) / mean(seconds['forced']):.2f}")


main()
