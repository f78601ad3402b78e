#!/bin/sh
# Runs all tests: first those that need only cargo, then those of the page in a real browser, those on a real, private
# containerd, those with a real, private systemd in addition, and those of the packages, which are installed in such a systemd.
#
#   run-tests.sh [ARGUMENT...]     arguments go to cargo, as in `run-tests.sh --release`
#
# A browser is Debian's Chromium, which root has installed here if it is missing. The last three parts need root on Linux, and
# install missing packages on Debian or Ubuntu. If one of these cannot run, the last lines say why, and the exit code is
# 0; with CI=true, that is a failure.
set -eu
cd "$(dirname "$0")/../.."
lab=tests/lab/containerd.sh
node=tests/lab/systemd.sh
packagers=tests/lab/packagers.sh

# Every test binary except those named containerd, packages, page and systemd; cargo has no way to exclude one by name.
others=
for file in tests/*.rs tests/*/main.rs; do
    case $file in
        tests/containerd/main.rs | tests/packages/main.rs | tests/page/main.rs | tests/systemd/main.rs | 'tests/*'*) continue ;;
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
    printf '\n%s\n' "Tests on a real containerd, with a real systemd and of the packages did NOT run: $said"
    if [ "${CI:-}" = true ]; then
        echo "This counts as a failure, because CI=true."
        exit 1
    fi
    echo "All other tests passed: unit, property, integration and documentation tests. Run them as root on Debian or Ubuntu to run these, too."
    exit 0
fi
cargo test "$@" --test containerd -- --test-threads=2

unbooted=$($node check) && unbooted=
if [ -z "$unbooted" ] && ! $node install; then
    unbooted="its packages could not be installed, see above"
fi
if [ -z "$unbooted" ]; then
    cargo test "$@" --test systemd -- --test-threads=2
    booted=" and a real systemd ($(systemd-nspawn --version | head -n 1 | cut -d' ' -f2))"
else
    booted=
    printf '\n%s\n' "Tests with a real systemd did NOT run: $unbooted"
    [ "${CI:-}" != true ] || { echo "This counts as a failure, because CI=true."; exit 1; }
fi

packed=", and those of the packages"
unpacked=$($packagers check) && unpacked=
if [ -z "$unpacked" ] && ! $packagers install; then
    unpacked="its packages could not be installed, see above"
fi
if [ -z "$unpacked" ]; then
    cargo test "$@" --test packages -- --test-threads=2
else
    packed=
    printf '\n%s\n' "Tests of the packages did NOT run: $unpacked"
    [ "${CI:-}" != true ] || { echo "This counts as a failure, because CI=true."; exit 1; }
fi
printf '\n%s\n' "All${unseen:+ other} tests passed: unit, property, integration and documentation tests$page, \
and those on a real containerd ($(containerd --version | cut -d' ' -f3))$booted$packed."
