#!/bin/sh
# What the tests of the packages need: tools that install, look at and check packages and images.
#
#   packagers.sh check      reports in one line whether this machine has them, or can have them; exit 0 yes, 1 no
#   packagers.sh install    installs the missing packages (Debian, Ubuntu)
#
# Results go to stdout, progress and errors to stderr.
set -eu
export LC_ALL=C

. "$(dirname "$0")/packages.sh"

# The missing packages, one per word. Checks for programs, which may also come from elsewhere.
lacking() {
    command -v lintian >/dev/null || echo lintian
    command -v rpm >/dev/null || echo rpm
    command -v shellcheck >/dev/null || echo shellcheck
    command -v skopeo >/dev/null || echo skopeo
    command -v strip >/dev/null || echo binutils
}

# Why this machine cannot have them, or nothing.
obstacle() {
    if ! command -v dpkg-deb >/dev/null; then echo "it does not use packages of Debian"
    elif [ -z "$(lacking)" ]; then :
    elif [ "$(id -u)" != 0 ]; then echo "missing: $(lacking | xargs), and only root can install them"
    elif ! command -v apt-get >/dev/null; then echo "missing: $(lacking | xargs), and there is no apt-get to install them"
    fi
}

check() {
    reason=$(obstacle)
    [ -z "$reason" ] || { echo "cannot check packages: $reason"; exit 1; }
    packages=$(lacking | xargs)
    if [ -n "$packages" ]; then echo "can check packages, after installing $packages"
    else echo "can check packages: lintian $(dpkg-query -W -f '${Version}' lintian 2>/dev/null)"
    fi
}

case "${1:-}" in
    check | install) "$1" ;;
    *) sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
