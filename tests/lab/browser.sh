#!/bin/sh
# A browser for the tests of the page: Chromium, and the chromedriver that drives it.
#
#   browser.sh check      reports in one line whether this machine has one, or can have one; exit 0 yes, 1 no
#   browser.sh install    installs the missing packages (Debian)
#
# Results go to stdout, progress and errors to stderr.
set -eu
export LC_ALL=C

. "$(dirname "$0")/packages.sh"

# The missing packages, one per word. Checks for programs, which may also come from elsewhere.
lacking() {
    command -v chromium >/dev/null || echo chromium
    command -v chromedriver >/dev/null || echo chromium-driver
}

# Why this machine cannot have a browser, or nothing. Ubuntu's package of this name only points to a snap.
obstacle() {
    [ -n "$(lacking)" ] || return 0
    if [ "$(id -u)" != 0 ]; then echo "missing: $(lacking | xargs), and only root can install them"
    elif ! command -v apt-get >/dev/null; then echo "missing: $(lacking | xargs), and there is no apt-get to install them"
    elif ! grep -qs '^ID=debian$' /etc/os-release; then echo "missing: $(lacking | xargs), which only Debian has as packages"
    fi
}

check() {
    reason=$(obstacle)
    [ -z "$reason" ] || { echo "this machine has no browser: $reason"; exit 1; }
    packages=$(lacking | xargs)
    if [ -n "$packages" ]; then echo "can have a browser, after installing $packages"
    else chromedriver --version | cut -d' ' -f1,2
    fi
}

case "${1:-}" in
    check | install) "$1" ;;
    *) sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
