"""One trial of llama.cpp through llama-cpp-python, as `rushlight bench --json` reports one of its own.

The environment says what: MODEL, THREADS, PROMPT, GENERATE. The prompt's time ends when its last logits are
there and their likeliest token is known; generation is GENERATE further passes, the likeliest token each time.
"""

import json
import os
import random
import resource
import time

import llama_cpp
import numpy as np

prompt, generate = int(os.environ["PROMPT"]), int(os.environ["GENERATE"])
threads = int(os.environ["THREADS"])

start = time.perf_counter()
model = llama_cpp.Llama(
    model_path=os.environ["MODEL"],
    n_ctx=prompt + generate + 1,
    n_batch=max(prompt, 1),
    n_ubatch=min(prompt, 512),
    n_threads=threads,
    n_threads_batch=threads,
    verbose=False,
)
load = time.perf_counter() - start
width = model.n_vocab()


def likeliest():
    logits = llama_cpp.llama_get_logits_ith(model.ctx, -1)
    return int(np.ctypeslib.as_array(logits, shape=(width,)).argmax())


def trial(prompt, generate):
    model.reset()
    tokens = [random.randrange(width) for _ in range(prompt)]
    start = time.perf_counter()
    model.eval(tokens)
    token = likeliest()
    read = time.perf_counter()
    for _ in range(generate):
        model.eval([token])
        token = likeliest()
    end = time.perf_counter()
    return prompt / (read - start), generate / (end - read) if generate else None


trial(min(prompt, 16), min(generate, 2))
speeds = trial(prompt, generate)
print(json.dumps({
    "peer": "llama.cpp",
    "version": llama_cpp.__version__,
    "prompt": {"mean": speeds[0]},
    "generation": {"mean": speeds[1]},
    "load_seconds": load,
    "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    "threads": threads,
}))
