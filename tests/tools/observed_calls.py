#!/usr/bin/env python3
"""Writes tests/data/observed/calls.json: ExecSync calls as clients make them.

A kubelet's probe worker in a few lines: a ticker that keeps one tick at most, one attempt at a time, three tries where
one errs, a trigger that resets the ticker (from 1.36 on) or does not (before). Starts are late by what a node's
scheduler costs: a millisecond or two as a rule, 20 to 60 ms in one of twenty. Run by hand, seeded: the numbers are
kept, so that no test depends on this.
"""

import json
import random


def late(rng, load=0.0):
    extra = rng.uniform(0.02, 0.06) if rng.random() < 0.05 else 0.0
    return 0.0005 + abs(rng.gauss(0, 0.0015)) + extra + rng.uniform(0, load)


def worker(rng, period, phase, until, attempt, triggers=(), resets=True, load=0.0):
    """Calls of one probe from `phase` on. `attempt(n, at)` gives how long the n-th takes and how it ends."""
    calls, count = [], 0
    triggers = sorted(triggers)
    tick, free = phase, 0.0
    while True:
        is_trigger = bool(triggers) and max(triggers[0], free) < max(tick, free)
        due = triggers.pop(0) if is_trigger else tick
        at = max(due, free)
        if at >= until:
            return calls, count
        if is_trigger:
            tick = at + period if resets else tick
        else:
            # One tick is kept while an attempt runs; the ticker stays in step.
            tick += period
        began = at + late(rng, load)
        took, end = attempt(count, at)
        for _ in range(3 if end.startswith("error") else 1):
            calls.append((began, took, end))
            free = began + took
            began = free + 0.001 + abs(rng.gauss(0, 0.002))
        while tick + period <= free:
            tick += period
        count += 1


def quick(rng, end=lambda n, at: "exit 0"):
    return lambda n, at: (0.025 + abs(rng.gauss(0, 0.012)), end(n, at))


def kubelet(*probes):
    calls, truth = [], []
    for period, (made, count) in probes:
        calls += made
        truth.append({"period": period, "attempts": count})
    return calls, truth


def rows():
    def row(rule, timeout, seed, make):
        calls, probes = make(random.Random(seed))
        calls = sorted(((round(b, 4), round(t, 4), e) for b, t, e in calls), key=lambda call: call[0] + call[1])
        probes.sort(key=lambda probe: probe["period"])
        return {"rule": rule, "timeout": timeout, "calls": calls, "probes": probes}

    def one(period, phase, until, end=lambda n, at: "exit 0", **more):
        return lambda rng: kubelet((period, worker(rng, period, phase, until, quick(rng, end), **more)))

    def several(*probes):
        def make(rng):
            made = []
            for period, phase, until, end, *more in probes:
                more = more[0] if more else {}
                made.append((period, worker(rng, period, phase, until, quick(rng, end), **more)))
            return kubelet(*made)
        return make

    fine = lambda n, at: "exit 0"
    bad = lambda n, at: "exit 1"
    no_binary = lambda n, at: "error NotFound"

    def started(n, at):
        return "exit 0" if at >= 10 else "exit 1"

    def slow(rng):
        def attempt(n, at):
            return (1.4 + rng.uniform(0, 0.2), "exit 0") if n % 7 == 5 else (0.03 + abs(rng.gauss(0, 0.01)), "exit 0")
        return kubelet((1, worker(rng, 1, 0.4, 30, attempt)))

    def hangs(rng):
        def attempt(n, at):
            return (0.03, "exit 0") if at < 8 else (2.002 + abs(rng.gauss(0, 0.003)), "deadline")
        return kubelet((1, worker(rng, 1, 0.4, 30, attempt)))

    def times_out(rng):
        calls, count = worker(rng, 1, 0.4, 12, lambda n, at: (1.003 + abs(rng.gauss(0, 0.002)), "deadline"))
        return kubelet((1, (calls, count)))

    def agent(rng):
        calls, at = [], 0.3
        for _ in range(14):
            took = rng.choice([0.05, 0.06, 0.055, 0.4]) + rng.uniform(0, 0.01)
            calls.append((at, took, "exit 0"))
            at += took + 1 + late(rng)
        return calls, [{"period": 1.1, "attempts": 14}]

    def restarted(rng):
        before, first = worker(rng, 5, 1.2, 40, quick(rng))
        after, second = worker(rng, 5, 55.9, 90, quick(rng))
        return before + after, [{"period": 5, "attempts": first + second}]

    def typed(rng):
        calls, at = [], 0.0
        for _ in range(14):
            at += 1.2 + rng.expovariate(0.4)
            calls.append((at, 0.05 + rng.uniform(0, 0.1), "exit 0"))
        return calls, []

    def burst(rng):
        calls, at = [], 2.0
        for _ in range(30):
            took = 0.12 + abs(rng.gauss(0, 0.004))
            calls.append((at, took, "exit 0"))
            at += took + 0.004 + abs(rng.gauss(0, 0.001))
        return calls, []

    def few(rng):
        return [(n * 4.0 + late(rng), 0.04, "exit 0") for n in range(3)], []

    def random_calls(rng):
        calls, at = [], 0.0
        for _ in range(120):
            at += rng.expovariate(0.5)
            calls.append((at, 0.03, "exit 0"))
        return calls, []

    return [
        row("a liveness probe every 10 s", 1, 1, one(10, 3.7, 120)),
        row("a loop every second", 1, 2, one(1, 0.2, 6)),
        row("a readiness probe that begins to fail", 1, 3, one(5, 1.1, 60, lambda n, at: "exit 0" if n < 7 else "exit 1")),
        row("an attempt that errs is tried three times and is one", 1, 4, one(10, 4.4, 100, no_binary)),
        row("erring every second", 1, 5, one(1, 0.4, 12, no_binary)),
        row("readiness and liveness of one period", 1, 6, several((10, 2.2, 120, fine), (10, 8.9, 120, fine))),
        row("readiness and liveness of one period, close together", 1, 7, several((10, 2.2, 140, fine), (10, 2.5, 140, fine))),
        row("readiness and liveness of two periods", 1, 8, several((5, 1.3, 120, fine), (10, 2.1, 120, fine))),
        row("readiness and liveness of two periods, both erring", 1, 9, several((5, 1.3, 120, no_binary), (10, 4.1, 120, no_binary))),
        row("three of one period", 1, 10, several((10, 0.8, 160, fine), (10, 3.1, 160, fine), (10, 7.7, 160, fine))),
        row("startup, then readiness, triggered when it succeeds, and liveness", 1, 11, several(
            (2, 0.6, 11, started), (5, 13.9, 90, fine, {"triggers": [10.7]}), (10, 17.2, 90, fine))),
        row("a readiness probe with triggers that start its period again", 1, 12,
            one(10, 2.0, 200, bad, triggers=[47.3, 80.1, 83.9, 128.8])),
        row("a readiness probe with triggers that do not", 1, 13,
            one(10, 2.0, 160, bad, triggers=[47.3, 80.1, 83.9, 128.8], resets=False)),
        row("attempts longer than the period drop ticks", 2, 14, slow),
        row("a probe that begins to hang until its timeout, longer than its period", 2, 15, hangs),
        row("a probe that always hangs until its timeout, as long as its period", 1, 16, times_out),
        row("a loaded node, late by up to 80 ms of a second", 1, 17, one(1, 0.3, 20, load=0.08)),
        row("an agent that sleeps a second after each call", 1, 18, agent),
        row("a kubelet that restarts", 1, 19, restarted),
        row("a person who types", 0, 20, typed),
        row("a script at work", 0, 21, burst),
        row("three calls", 0, 22, few),
        row("random calls", 0, 23, random_calls),
    ]


if __name__ == "__main__":
    made = rows()
    with open("tests/data/observed/calls.json", "w") as out:
        out.write("[\n")
        for at, row in enumerate(made):
            head = {key: row[key] for key in ("rule", "timeout", "probes")}
            calls = [json.dumps(call) for call in row["calls"]]
            out.write(json.dumps(head)[:-1] + ', "calls": [\n')
            for start in range(0, len(calls), 4):
                out.write("  " + ", ".join(calls[start:start + 4]) + ("," if start + 4 < len(calls) else "") + "\n")
            out.write("]}" + ("," if at + 1 < len(made) else "") + "\n")
        out.write("]\n")
