#!/bin/sh
# Runs all tests: first those that need only cargo, then those of the page in a real browser, and those on a real,
# private containerd.
#
#   run-tests.sh [ARGUMENT...]     arguments go to cargo, as in `run-tests.sh --release`
#
# A browser is Debian's Chromium, which root has installed here if it is missing. The last part needs root on Linux, and
# installs missing packages on Debian or Ubuntu. If one of these cannot run, the last lines say why, and the exit code is
# 0; with CI=true, that is a failure.
set -eu
cd "$(dirname "$0")/../.."
lab=tests/lab/containerd.sh

# Every test binary except those named containerd and page; cargo has no way to exclude one by name.
others=
for file in tests/*.rs tests/*/main.rs; do
    case $file in
        tests/containerd/main.rs | tests/page/main.rs | 'tests/*'*) continue ;;
        */main.rs) name=$(basename "$(dirname "$file")") ;;
        *) name=$(basename "$file" .rs) ;;
    esac
    others="$others --test $name"
done
# Metrics and alerts are checked with promtool. Where it cannot be fetched, the tests that need it fail with CI=true, and
# otherwise leave that part out.
unchecked=
tests/lab/promtool.sh fetch || unchecked="Metrics and alerts were NOT checked with promtool, see above."
# Many unit tests wait rather than compute: two of them per processor.
RUST_TEST_THREADS=${RUST_TEST_THREADS:-$((2 * $(nproc)))} cargo test "$@" -p criprobe -p criprobe-wire --lib --bins
# shellcheck disable=SC2086 # one word an argument
cargo test "$@" $others
cargo test "$@" --doc
cargo test "$@" -p criprobe-proto
cargo test "$@" -p criprobe-fleet

page=", those of the page in a browser"
unseen=$(tests/lab/browser.sh check) && unseen=
if [ -z "$unseen" ] && ! tests/lab/browser.sh install; then
    unseen="its packages could not be installed, see above"
fi
if [ -z "$unseen" ]; then
    cargo test "$@" --test page -- --test-threads=2
else
    page=
    unseen="Tests of the page in a browser did NOT run: $unseen"
fi

said=$($lab check) && able=yes || able=
if [ -n "$able" ] && ! $lab install; then
    able=
    said="its packages could not be installed, see above"
fi
[ -z "$unchecked" ] || printf '\n%s\n' "$unchecked"
if [ -n "$unseen" ]; then
    printf '\n%s\n' "$unseen"
    [ "${CI:-}" != true ] || { echo "This counts as a failure, because CI=true."; exit 1; }
fi
if [ -z "$able" ]; then
    printf '\n%s\n' "Tests on a real containerd did NOT run: $said"
    if [ "${CI:-}" = true ]; then
        echo "This counts as a failure, because CI=true."
        exit 1
    fi
    echo "All other tests passed: unit, property, integration and documentation tests. Run them as root on Debian or Ubuntu to run these, too."
    exit 0
fi
cargo test "$@" --test containerd -- --test-threads=2
printf '\n%s\n' "All${unseen:+ other} tests passed: unit, property, integration and documentation tests$page, \
and those on a real containerd ($(containerd --version | cut -d' ' -f3))."
