#!/bin/sh
# What the scripts of the Debian package and of the RPM share; installed as /usr/lib/criprobe/maintenance.
#
#   maintenance may-be-removed         exit 1 while something on this node uses criprobe's socket, with what that is, and what
#                                      to do about it; CRIPROBE_FORCE_REMOVE=1 makes it a warning
#   maintenance hand-over SYSTEMCTL    replaces a running criprobe by the installed one, if that accepts the configuration
#   maintenance warnings               prints which other units hide those of the package, or listen on the same socket
#
# ROOT is a folder to look into instead of /, and CRIPROBE the binary, for tests. It changes no setting of a kubelet or of crictl.
set -eu
export LC_ALL=C

root=${ROOT:-}
criprobe=${CRIPROBE:-/usr/bin/criprobe}
config=$root/etc/criprobe
default=/run/criprobe/criprobe.sock
# Folders with units, other than those of an image that is not merged.
unit_folders="etc/systemd/system run/systemd/system usr/local/lib/systemd/system usr/lib/systemd/system"
[ -L "$root/lib" ] || unit_folders="$unit_folders lib/systemd/system"

say() { printf '%s\n' "$*" >&2; }

# Those of the arguments that are files: a pattern without a match is none.
files() { for file; do [ ! -f "$file" ] || printf '%s\n' "$file"; done; }

# What the files that are named on stdin have in them, the last line of each with an end.
contents() { while IFS= read -r file; do cat "$file"; echo; done; }

# ---- the socket ----

# Paths on stdin as they are written in settings, one a line: without quotes, scheme, comments, and the old name of /run.
plain_paths() {
    sed -e "s/^[\"']*//" -e "s/[\"'[:space:]].*//" -e 's|^unix:||' -e 's|^//*|/|' -e 's|^/var/run/|/run/|' | grep '^/' || true
}

# The value of a setting at the top level of the configuration; the last file counts.
setting() {
    files "$config/config.yaml" "$config"/conf.d/*.yaml | contents | sed -n "s/^$1:[[:space:]]*//p" | tail -n 1 | plain_paths
}

# Where clients find criprobe: at its default path, and wherever its configuration or its units put it.
sockets() {
    {
        echo "$default"
        setting listen
        for folder in $unit_folders; do
            files "$root/$folder"/criprobe.service "$root/$folder"/criprobe.service.d/*.conf \
                "$root/$folder"/criprobe.socket "$root/$folder"/criprobe.socket.d/*.conf
        done | contents | sed -n -e 's/^ListenStream=//p' -e 's/.*CRIPROBE_LISTEN=//p' -e 's/.*--listen[= ]//p' | plain_paths
    } | sort -u
}

# ---- who uses it ----

# What criprobe finds of the kubelet, of crictl, and of connections at socket $1, a line each.
clients() {
    # A damaged installation can be removed, too.
    "$criprobe" --version >/dev/null 2>&1 || return 0
    ! reasons=$(timeout 30 "$criprobe" node status --check unused --endpoint "unix://$1" --root "$root/" 2>&1 >/dev/null </dev/null) ||
        return 0
    printf '%s\n' "${reasons:-criprobe node status did not end}" | sed -e 's/^criprobe: //' -e 's/^in use: //' -e 's/; /\n/g'
}

# The lines that name socket $1 in what criprobe does not know: the settings of k3s, RKE2 and MicroK8s, units of others, and
# variables. Comments do not count, and neither do our own units.
mentions() {
    cd "$root/"
    grep -rIHnsE --exclude='criprobe.*' --exclude-dir='criprobe.*' "^[[:space:]]*([^#;[:space:]][^#]*)?$1([^A-Za-z0-9_.-]|\$)" \
        etc/rancher var/snap/microk8s/current/args etc/systemd/system etc/default etc/sysconfig etc/environment etc/profile.d |
        sed -e 's|^|/|' -e 's/:[[:space:]]*/: /2' | cut -c-160
}

users() {
    for socket in $(sockets); do
        clients "$socket"
        mentions "$socket"
    done
}

# ---- what the packages' scripts ask for ----

may_be_removed() {
    found=$(users | sed 's/^/  /')
    [ -n "$found" ] || return 0
    if [ "${CRIPROBE_FORCE_REMOVE:-}" = 1 ]; then
        say "criprobe is removed, although its socket is in use, and there will be no runtime behind it:"
        say "$found"
        return 0
    fi
    say "criprobe is NOT removed, because its socket is in use, and there would be no runtime behind it:"
    say "$found"
    runtime=$(setting runtime)
    say "Point all of them back at unix://${runtime:-/run/containerd/containerd.sock}, and remove criprobe then. For the kubelet and crictl:"
    for socket in $(sockets); do
        option=
        [ "$socket" = "$default" ] || option=" --endpoint unix://$socket"
        [ -z "$(clients "$socket")" ] || say "  criprobe node revert$option && systemctl restart kubelet"
    done
    say "To remove it all the same, set CRIPROBE_FORCE_REMOVE=1 for this command; with sudo, after that word."
    return 1
}

# A criprobe that refuses its configuration exits, and the node has no runtime: the old one rather stays.
hand_over() {
    [ -d /run/systemd/system ] || return 0
    systemctl --quiet is-active criprobe.service || return 0
    systemctl=$1
    # Each by its name: of those that it finds by itself, it skips the ones that have nothing of a configuration.
    set --
    for file in "$config/config.yaml" "$config"/conf.d/*.yaml; do
        [ ! -f "$file" ] || set -- "$@" "$file"
    done
    if [ $# -gt 0 ] && ! report=$("$criprobe" check "$@" 2>&1); then
        say "criprobe was NOT restarted, and its previous version goes on, because the new one does not accept the configuration:"
        say "$report"
        say "Correct it, then: systemctl restart criprobe"
        return 1
    fi
    # The signal of a restart, SIGUSR1 (bit 9), would kill a build that does not catch it: that one is stopped, and drains.
    pid=$(systemctl show --property=MainPID --value criprobe.service)
    case $(sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/$pid/status" 2>/dev/null) in
        '' | *[2367abef]??) ;;
        *) "$systemctl" stop criprobe.service || true ;;
    esac
    "$systemctl" restart criprobe.service || {
        say "criprobe did not restart: see systemctl status criprobe, journalctl -u criprobe"
        return 1
    }
}

warnings() {
    for unit in criprobe.service criprobe.socket; do
        file=/etc/systemd/system/$unit
        # A link is a mask, or what `enable` made.
        if [ -f "$root$file" ] && [ ! -L "$root$file" ]; then
            say "criprobe: $file hides the package's unit: remove it, unless you need it; a drop-in changes single settings"
        fi
    done
    for socket in $(sockets); do
        for folder in $unit_folders; do
            files "$root/$folder"/*.socket
        done | grep -v '/criprobe\.socket$' | while IFS= read -r file; do
            ! grep -qE "^ListenStream=(/var)?$socket\$" "$file" ||
                say "criprobe: ${file#"$root"} listens on $socket, too, and takes it away when it starts: remove it, or change its path"
        done
    done
}

case ${1:-}:$# in
    warnings:1) warnings ;;
    may-be-removed:1) may_be_removed ;;
    hand-over:2) hand_over "$2" ;;
    *) sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
