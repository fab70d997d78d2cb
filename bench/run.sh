#!/usr/bin/env bash
# rushlight beside llama.cpp (through llama-cpp-python, where it is importable): the same model, the same
# threads, trials in turns. README.md says what is measured.
#
#   bench/run.sh BIN
#
# MODEL     a .gguf file or a name in the store     [SmolLM2-135M-Instruct.Q4_1]
# THREADS   threads of both                         [every core]
# TRIALS    trials of each                          [5]
# PROMPT    prompt tokens                           [512]
# GENERATE  generated tokens                        [128]
# PYTHON    a Python that may have llama_cpp        [python3]
set -euo pipefail

bin=${1:?usage: bench/run.sh BIN}
here=$(cd "$(dirname "$0")" && pwd)
export PROMPT=${PROMPT:-512} GENERATE=${GENERATE:-128} TRIALS=${TRIALS:-5}
export THREADS=${THREADS:-$(nproc)}
python=${PYTHON:-python3}

MODEL=$("$bin" inspect --json "${MODEL:-SmolLM2-135M-Instruct.Q4_1}" |
  "$python" -c 'import json, sys; print(json.load(sys.stdin)["path"])')
export MODEL

peer=yes
"$python" -c 'import llama_cpp' 2>/dev/null || peer=
[ -n "$peer" ] || echo "llama_cpp is not importable by $python: rushlight alone is measured" >&2

out=$(mktemp)
trap 'rm -f "$out"' EXIT
for trial in $(seq "$TRIALS"); do
  echo "trial $trial of $TRIALS" >&2
  "$bin" bench --json --model "$MODEL" -p "$PROMPT" -g "$GENERATE" -n 1 --threads "$THREADS" \
    --seed "$trial" >>"$out"
  [ -z "$peer" ] || "$python" "$here/peer.py" >>"$out"
done
"$python" "$here/summary.py" "$out"
