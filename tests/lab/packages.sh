# Installs what a script of this folder needs from Debian or Ubuntu. Such a script sources this file, and defines `lacking`,
# which prints the missing packages, and `obstacle`, which prints why they cannot be installed.

# Lock for what these scripts share: the package manager and the choice of a subnet. Only root can create this file.
LOCK=/run/criprobe-lab.lock

say() { printf '%s\n' "$*" >&2; }
die() { say "$(basename "$0"): $*"; exit 1; }

install() {
    [ -n "$(lacking)" ] || return 0
    reason=$(obstacle)
    [ -z "$reason" ] || die "cannot install: $reason"
    (
        flock 9
        packages=$(lacking | xargs) # another run may have installed them while we waited
        [ -n "$packages" ] || exit 0
        say "installing $packages"
        log=$(mktemp)
        trap 'rm -f "$log"' EXIT
        export DEBIAN_FRONTEND=noninteractive
        {
            apt-get -o DPkg::Lock::Timeout=300 update || true # the install shows whether it mattered
            # shellcheck disable=SC2086 # one word a package
            apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends $packages
        } >"$log" 2>&1 </dev/null 9>&- || { tail -n 5 "$log" >&2; die "apt-get could not install $packages"; }
    ) 9>$LOCK
    [ -z "$(lacking)" ] || die "still missing after apt-get: $(lacking | xargs)"
}
