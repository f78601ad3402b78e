#!/usr/bin/env python3
"""Makes inputs for the fuzz targets of what the tests have: recordings, probes, the packaged configuration. `make fuzz`
runs it; by hand: `fuzz/seeds.py`, then `cargo +nightly fuzz run TARGET`. They go where cargo-fuzz looks for them,
fuzz/corpus/TARGET."""

import json
import pathlib

FUZZ = pathlib.Path(__file__).resolve().parent
PREFACE = 24


def chunks(recording):
    rest = recording[recording.index(b"\n\n") + 2 :]
    while rest:
        end = 5 + int.from_bytes(rest[1:5], "big")
        yield rest[:1], rest[5:end]
        rest = rest[end:]


def script(recording):
    """The format of fuzz_targets/tap.rs."""
    for side, chunk in chunks(recording):
        for at in range(0, len(chunk), 255):
            piece = chunk[at : at + 255]
            yield bytes([side == b"R", len(piece)]) + piece


def header_blocks(recording, wanted):
    """The format of fuzz_targets/hpack.rs."""
    rest = b"".join(chunk for side, chunk in chunks(recording) if side == wanted)[PREFACE if wanted == b"C" else 0 :]
    while len(rest) >= 9:
        end = 9 + int.from_bytes(rest[:3], "big")
        if rest[3] == 1 and end - 9 < 256:
            yield bytes([end - 9]) + rest[9:end]
        rest = rest[end:]


def write(name, parts):
    seed = FUZZ / "corpus" / name
    seed.parent.mkdir(parents=True, exist_ok=True)
    seed.write_bytes(b"".join(parts))


for path in FUZZ.parent.glob("tests/data/recordings/*.rec"):
    recording = path.read_bytes()
    seeds = {f"tap/{path.stem}": script(recording)}
    # Cut at the beginning, within the first calls, and near the end; and once damaged.
    cuts = [at * len(recording) // 8 for at in (0, 1, 3, 7)]
    for at in cuts:
        beginning = min(at, 0xFFFF).to_bytes(2, "little")
        seeds[f"handover/{path.stem}-{at}"] = [beginning, b"\x00", *script(recording)]
        seeds[f"handover/{path.stem}-{at}-damaged"] = [beginning, b"\x01", b"\x40\x00\x01", *script(recording)]
    seeds |= {f"hpack/{path.stem}-{side.decode()}": header_blocks(recording, side) for side in (b"C", b"R")}
    for name, parts in seeds.items():
        write(name, parts)

KINDS = ["startup", "readiness", "liveness"]
for line in (FUZZ.parent / "tests/data/prober/validation.jsonl").read_text().splitlines():
    row = json.loads(line)
    probe = json.dumps(row["probe"]).encode()
    write(f"annotation/{row['id']}", [bytes([KINDS.index(row["kind"])]), probe])
    rule = {"name": row["id"], "match": {"pod": "*"}, row["kind"]: row["probe"]}
    write(f"config/{row['id']}", [json.dumps({"rules": [rule]}).encode()])
write("config/packaged", [(FUZZ.parent / "packaging/config.yaml").read_bytes()])
for path in FUZZ.parent.glob("tests/data/check/**/*.*"):
    write(f"manifest/{path.name}", [path.read_bytes()])
