#!/bin/sh
# Boots a private, real systemd for a test, and later removes it without a trace.
#
#   systemd.sh check                     reports in one line whether this machine can run it; exit 0 yes, 1 no
#   systemd.sh install                   installs missing packages (Debian, Ubuntu)
#   systemd.sh up DIR [OWNER [PATH...]]  boots one with its notes in DIR, and prints the pid of its systemd; removes it when
#                                        the process OWNER ends (0: never); each PATH, a file or folder, is in it, too,
#                                        at the same place, or as PATH:PLACE says
#   systemd.sh run DIR COMMAND...        runs a command in it, as root
#   systemd.sh down DIR                  ends it, with everything that runs in it, and removes DIR
#
# It has this machine's own system, with a layer in memory above it: what it writes is gone at the end. It starts none of
# this machine's services. It shares the network of the machine, but cannot change it. /proc/PID/root shows its files, PID
# being that of its systemd. Several can run at the same time, also on a machine that itself runs systemd.
# Results go to stdout, progress and errors to stderr. Its console is DIR/console.log.
set -eu
umask 022
export LC_ALL=C PATH="$PATH:/usr/sbin:/sbin"

# Seconds to wait for the boot to end, or for everything to be gone.
PATIENCE=60

. "$(dirname "$0")/packages.sh"
. "$(dirname "$0")/processes.sh"

# ---- the machine ----

# The missing packages, one per word. Checks for programs, which may also come from elsewhere.
lacking() {
    command -v systemd-nspawn >/dev/null || echo systemd-container
    [ -x /lib/systemd/systemd ] || echo systemd
}

# The roots of the cgroup hierarchies that systemd uses: version 2, version 1 with its own, or both.
hierarchies() {
    for root in /sys/fs/cgroup /sys/fs/cgroup/unified /sys/fs/cgroup/systemd; do
        ! [ -w $root/cgroup.procs ] || echo $root
    done
}

# Why this machine cannot run a systemd of its own, or nothing.
obstacle() {
    if [ "$(uname -s)" != Linux ]; then echo "needs Linux, this is $(uname -s)"
    elif [ "$(id -u)" != 0 ]; then echo "needs root, this is uid $(id -u)"
    elif [ -n "$(lacking)" ] && ! command -v apt-get >/dev/null; then
        echo "missing: $(lacking | xargs), and there is no apt-get to install them"
    elif ! unshare --mount --pid --fork sh -c 'mount -t tmpfs tmpfs /mnt' 2>/dev/null; then
        echo "root cannot create namespaces and mount a tmpfs here (a container without CAP_SYS_ADMIN?)"
    elif ! unshare --mount sh -c 'mount -t tmpfs tmpfs /mnt && mkdir /mnt/upper /mnt/work /mnt/root &&
        mount -t overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work overlay /mnt/root' 2>/dev/null; then
        echo "the file system of / cannot be below an overlay"
    elif [ -z "$(hierarchies)" ]; then
        echo "no cgroup file system that systemd uses is mounted writable below /sys/fs/cgroup"
    fi
}

check() {
    reason=$(obstacle)
    [ -z "$reason" ] || { echo "cannot run a private systemd: $reason"; exit 1; }
    packages=$(lacking | xargs)
    if [ -n "$packages" ]; then echo "can run a private systemd, after installing $packages"
    else echo "can run a private systemd: $(systemd-nspawn --version | head -n 1 | cut -d' ' -f2)"
    fi
}

# ---- one rig ----

# Sets DIR to the absolute path of the rig in $1, or fails if it is not a rig.
open_rig() {
    DIR=$(readlink -f "$1")
    [ -f "$DIR/rig" ] || die "$1 is not a rig of systemd.sh"
}

# The name of DIR's cgroups.
cgroup() { printf 'criprobe-lab-%08x' "$(printf %s "$DIR" | cksum | cut -d' ' -f1)"; }

# The pid of the process that holds DIR's namespaces, or nothing if it has ended. It is not another one that reused the pid.
keeper() {
    pid=$(cat "$DIR/keeper.pid" 2>/dev/null) || return 0
    ! grep -qszxF "$DIR" "/proc/$pid/cmdline" || has_ended "$pid" || echo "$pid"
}

# The pids of the children of process $1.
children() { cat "/proc/$1/task/$1/children" 2>/dev/null || true; }

# The pid of DIR's systemd, or nothing: keeper -> systemd-nspawn -> systemd.
systemd() {
    for nspawn in $(children "$(keeper)"); do
        for pid in $(children "$nspawn"); do
            ! [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = systemd ] || echo "$pid"
        done
    done
}

# Runs a command in it. It is not a child of its systemd, but ends with it.
inside() {
    pid=$(systemd)
    [ -n "$pid" ] || die "the systemd of $DIR does not run, see $DIR/console.log"
    nsenter --target "$pid" --all env -i HOME=/root LC_ALL=C TERM=dumb \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
}

# ---- up ----

# In namespaces of its own, of which it is the first process: mounts the layers, and becomes systemd-nspawn.
enter() {
    DIR=$1
    shift
    for root in $(hierarchies); do echo 0 >"$root/$(cgroup)/cgroup.procs"; done
    # What systemd-nspawn writes there is not for the machine.
    mount -t tmpfs tmpfs /run/systemd
    mount -t tmpfs -o mode=0755 tmpfs "$DIR/layers"
    mkdir "$DIR/layers/upper" "$DIR/layers/work" "$DIR/layers/root"
    mount -t overlay -o "lowerdir=/,upperdir=$DIR/layers/upper,workdir=$DIR/layers/work" overlay "$DIR/layers/root"
    strip_system "$DIR/layers/root"
    binds=
    for path; do binds="$binds --bind=${path%:*}:${path#*:}:norbind"; done
    # shellcheck disable=SC2086 # one word an argument; `up` has refused paths with spaces
    exec systemd-nspawn --quiet --register=no --keep-unit --directory="$DIR/layers/root" --machine="$(cgroup)" \
        --link-journal=no --resolv-conf=off --timezone=off --console=pipe $binds --boot
}

# Removes from the system in $1 what would start services, look for disks, or only take time.
strip_system() {
    etc=$1/etc
    # A machine id other than this machine's. Without one, it would enable all services that are installed.
    rm -f "$etc/machine-id" "$etc/fstab" "$etc/crypttab"
    tr -d - </proc/sys/kernel/random/uuid >"$etc/machine-id"
    rm -rf "$etc/systemd/system" "$etc"/rc?.d
    mkdir -p "$etc/systemd/system" "$etc/systemd/journald.conf.d"
    for unit in \
        containerd docker crio kubelet nginx haproxy postgresql cron ssh nftables networking ifupdown-pre \
        systemd-networkd systemd-resolved systemd-timesyncd systemd-logind systemd-user-sessions systemd-udevd \
        systemd-udev-trigger systemd-hwdb-update systemd-journal-catalog-update systemd-journal-flush systemd-firstboot \
        systemd-sysusers systemd-update-utmp systemd-update-done systemd-binfmt systemd-random-seed ldconfig e2scrub_reap
    do
        ln -s /dev/null "$etc/systemd/system/$unit.service"
    done
    for unit in getty.target remote-fs.target timers.target systemd-udevd-kernel.socket systemd-udevd-control.socket; do
        ln -s /dev/null "$etc/systemd/system/$unit"
    done
    ln -s /lib/systemd/system/multi-user.target "$etc/systemd/system/default.target"
    printf '[Journal]\nStorage=volatile\nRateLimitBurst=0\n' >"$etc/systemd/journald.conf.d/lab.conf"
}

has_booted() {
    # Not by `keeper`: a process has no command line while it becomes another one.
    ! has_ended "$(cat "$DIR/keeper.pid")" || { tail -n 5 "$DIR/console.log" >&2; die "it ended during its boot"; }
    [ -n "$(systemd)" ] || return 1
    # `degraded` is good: it means that some service of the machine cannot run in it.
    case $(inside timeout "$PATIENCE" systemctl is-system-running --wait 2>/dev/null || true) in
        running | degraded) ;;
        *) return 1 ;;
    esac
}

# Removes what an `up` that failed has made.
clean_up() {
    if [ -f "$DIR/rig" ]; then down "$DIR"; else rmdir "$DIR" 2>/dev/null || true; fi
}

up() {
    reason=$(obstacle)
    [ -z "$reason" ] || die "cannot run a private systemd: $reason"
    install
    mkdir -p "$(dirname "$1")"
    DIR=$(readlink -f "$1") owner=${2:-0}
    shift; [ $# = 0 ] || shift
    for path; do
        case $path in
            *[!A-Za-z0-9_./:-]*) die "a path that is bound may have only letters, digits and _ . / - in it: $path" ;;
            /*:*:* | /*:[!/]* | [!/]*) die "this is not an absolute PATH or PATH:PLACE: $path" ;;
            *) [ -e "${path%:*}" ] || die "${path%:*} does not exist" ;;
        esac
    done
    [ -z "$(ls -A "$DIR" 2>/dev/null)" ] || die "$DIR is not empty"
    trap 'clean_up' EXIT
    trap 'exit 1' INT TERM HUP
    mkdir -p "$DIR"
    echo "a rig of tests/lab/systemd.sh: remove it with 'systemd.sh down'" >"$DIR/rig"
    [ "$owner" = 0 ] || setsid "$0" watch "$DIR" "$owner" >/dev/null 2>&1 </dev/null &
    mkdir "$DIR/layers"
    mkdir -p /run/systemd
    for root in $(hierarchies); do mkdir -p "$root/$(cgroup)"; done
    setsid unshare --mount --pid --fork --kill-child --mount-proc "$0" enter "$DIR" "$@" \
        >"$DIR/console.log" 2>&1 </dev/null &
    echo $! >"$DIR/keeper.pid"
    eventually has_booted || die "it does not boot, see $DIR/console.log"
    trap - EXIT
    systemd
}

# ---- down ----

# Kills what is left in DIR's cgroups; whether nothing is.
is_cleared() {
    left=$(for root in $(hierarchies); do find "$root/$(cgroup)" -name cgroup.procs -exec cat {} + 2>/dev/null; done)
    # shellcheck disable=SC2086 # one word a process
    [ -z "$left" ] || { kill -KILL $left 2>/dev/null; return 1; }
}

# Ends it without a shutdown: the end of the keeper is that of all processes and mounts in its namespaces.
down() {
    [ -e "$1" ] || return 0
    open_rig "$1"
    pid=$(keeper)
    [ -z "$pid" ] || { kill -KILL "$pid"; eventually has_ended "$pid"; } || die "the systemd of $DIR does not end"
    eventually is_cleared || die "processes of the systemd of $DIR do not end"
    for root in $(hierarchies); do
        [ ! -d "$root/$(cgroup)" ] || find "$root/$(cgroup)" -depth -type d -exec rmdir {} +
    done
    rm -rf --one-file-system "$DIR"
    rmdir /run/systemd 2>/dev/null || true
}

usage() { sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0"; }

case ${1:-}:$# in
    check:1) check ;;
    install:1) install ;;
    up:1) usage >&2; exit 2 ;;
    up:*) shift; up "$@" ;;
    run:1 | run:2) usage >&2; exit 2 ;;
    run:*) open_rig "$2"; shift 2; inside "$@" ;;
    down:2) down "$2" ;;
    watch:3) watch "$2" "$3" ;;
    enter:*) shift; enter "$@" ;;
    help:1 | --help:1 | -h:1) usage ;;
    *) usage >&2; exit 2 ;;
esac
