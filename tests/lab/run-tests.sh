#!/bin/sh
# Runs all tests: first those that need only cargo, then those on a real, private containerd.
#
#   run-tests.sh [ARGUMENT...]     arguments go to cargo, as in `run-tests.sh --release`
#
# The second part needs root on Linux, and installs missing packages on Debian or Ubuntu. If it cannot run, the last
# lines say why, and the exit code is 0; with CI=true, that is a failure.
set -eu
cd "$(dirname "$0")/../.."
lab=tests/lab/containerd.sh

# Every test binary except the one named containerd; cargo has no way to exclude one by name.
others=
for file in tests/*.rs tests/*/main.rs; do
    case $file in
        tests/containerd/main.rs | 'tests/*'*) continue ;;
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

said=$($lab check) && able=yes || able=
if [ -n "$able" ] && ! $lab install; then
    able=
    said="its packages could not be installed, see above"
fi
[ -z "$unchecked" ] || printf '\n%s\n' "$unchecked"
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
printf '\n%s\n' "All tests passed: unit, property, integration and documentation tests, and those on a real containerd \
($(containerd --version | cut -d' ' -f3))."
