#!/bin/sh
# Finds promtool, which checks metrics and alerts, or fetches it.
#
#   promtool.sh path     prints where it is; exit 1 if it is nowhere
#   promtool.sh fetch    takes it from the package prometheus of Debian or Ubuntu, if it is nowhere; installs nothing
#
# One in PATH comes first. One that is fetched is target/tools/promtool; the server of that package is not kept.
set -eu
cd "$(dirname "$0")/../.."
export LC_ALL=C

tools=${CARGO_TARGET_DIR:-target}/tools
case $tools in
    /*) ;;
    *) tools=$PWD/$tools ;;
esac

die() { printf 'promtool.sh: %s\n' "$*" >&2; exit 1; }

path() { command -v promtool || { [ -x "$tools/promtool" ] && echo "$tools/promtool"; }; }

download() {
    apt-get download prometheus || { apt-get -o DPkg::Lock::Timeout=300 update && apt-get download prometheus; }
}

fetch() {
    ! path >/dev/null || return 0
    command -v apt-get >/dev/null || die "promtool was not found, and there is no apt-get to fetch it: install Prometheus"
    mkdir -p "$tools"
    dir=$(mktemp -d "$tools/fetch.XXXXXX")
    trap 'rm -rf "$dir"' EXIT
    echo "fetching promtool from the package prometheus" >&2
    (cd "$dir" && download) >"$dir/log" 2>&1 </dev/null ||
        { tail -n 5 "$dir/log" >&2; die "apt-get could not download the package prometheus"; }
    dpkg-deb -x "$dir"/prometheus_*.deb "$dir/root"
    # One step, as another run may do the same.
    mv "$dir/root/usr/bin/promtool" "$tools/promtool"
}

case ${1:-} in
    path) path ;;
    fetch) fetch ;;
    *) die "usage: promtool.sh path|fetch" ;;
esac
