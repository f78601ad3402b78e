#!/bin/sh
# What the scripts of the Debian package and of the RPM share; installed as /usr/lib/criprobe/maintenance.
#
#   maintenance users                  prints what on this node still uses criprobe's socket, a line each; exit 1 if anything does
#   maintenance may-be-removed         the same, and what to do about it; CRIPROBE_FORCE_REMOVE=1 makes it a warning
#   maintenance hand-over SYSTEMCTL    replaces a running criprobe by the installed one, if that accepts the configuration
#   maintenance warnings               prints which units of an installation by hand hide those of the package
#
# ROOT is a folder to look into instead of /, for tests. It changes no setting of a kubelet or of crictl.
set -eu
export LC_ALL=C

root=${ROOT:-}
config=$root/etc/criprobe
# Folders with units, other than those of an image that is not merged.
unit_folders="etc/systemd/system run/systemd/system usr/local/lib/systemd/system usr/lib/systemd/system"
[ -L "$root/lib" ] || unit_folders="$unit_folders lib/systemd/system"

say() { printf '%s\n' "$*" >&2; }

# Those of the arguments that are files: a pattern without a match is none.
files() { for file; do [ ! -f "$file" ] || printf '%s\n' "$file"; done; }

# The units of other services, or only those whose names begin with $1, and their drop-ins.
units() {
    for folder in $unit_folders; do
        files "$root/$folder/${1:-}"*.service "$root/$folder/${1:-}"*.service.d/*.conf \
            "$root/$folder/${1:-}"*.socket "$root/$folder/${1:-}"*.socket.d/*.conf
    done
}

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
        echo /run/criprobe/criprobe.sock
        setting listen
        units criprobe | contents |
            sed -n -e 's/^ListenStream=//p' -e 's/.*CRIPROBE_LISTEN=//p' -e 's/.*--listen[= ]//p' | plain_paths
    } | sort -u
}

# ---- who uses it ----

# Prints the lines of these files that name a socket, with file and number, except for comments. With "yaml" as $1, a
# comment may also follow on the same line; in units and files of variables, # does not begin one there.
naming_lines() {
    kind=$1
    shift
    [ $# = 0 ] || awk -v paths="$paths" -v kind="$kind" -v root="$root" '
        BEGIN { count = split(paths, path, "\n") }
        /^[ \t]*[#;]/ { next }
        {
            text = $0
            if (kind == "yaml") sub(/[ \t]#.*/, "", text)
            for (i = 1; i <= count; i++) {
                at = index(text, path[i])
                if (at && substr(text, at + length(path[i]), 1) !~ /[A-Za-z0-9_.-]/) {
                    # Of a long line, what is around it.
                    text = substr(text, at > 60 ? at - 60 : 1, 160)
                    sub(/^[ \t]+/, "", text)
                    printf "%s:%d: %s\n", substr(FILENAME, length(root) + 1), FNR, text
                    break
                }
            }
        }' "$@"
}

# The same for files that are named on stdin.
naming_lines_of() {
    kind=$1
    set --
    while IFS= read -r file; do set -- "$@" "$file"; done
    naming_lines "$kind" "$@"
}

# Files of variables: of kubelets, and of people.
variables() {
    files "$root/etc/environment" "$root"/etc/default/* "$root"/etc/sysconfig/* "$root"/etc/profile.d/*.sh \
        "$root"/var/lib/kubelet/*.env "$root"/etc/kubernetes/*.env "$root"/var/snap/microk8s/current/args/*
    units kubelet | contents | sed -n 's/^EnvironmentFile=-\{0,1\}//p' | while IFS= read -r file; do files "$root$file"; done
}

# The folders in /proc of the kubelets that run.
kubelets() { grep -lsxE 'kubelet|kubelite|hyperkube|k3s.*|rke2.*' "$root"/proc/[0-9]*/comm | sed 's|/comm$||' || true; }

# What a kubelet's --config and --config-dir name, wherever they are set.
named_configurations() {
    # shellcheck disable=SC2020 # five characters, each of which becomes the end of a line
    {
        units kubelet
        variables
        kubelets | sed 's|$|/cmdline|'
    } | contents | tr '\000"= '"'" '\n\n\n\n\n' | awk 'wanted && /^\// { print } { wanted = /^--config(-dir)?$/ }' | sort -u
}

# Configurations of kubelets and of crictl.
configurations() {
    files "$root"/etc/crictl.yaml "$root"/var/lib/kubelet/*.yaml "$root"/var/lib/kubelet/*.json "$root"/var/lib/kubelet/*.conf
    named_configurations | sed "s|^|$root|" | searched
    printf '%s\n' "$root/etc/kubernetes" "$root/etc/rancher" "$root/var/lib/kubelet/config.d" | searched
}

# Files that are named on stdin, and the configurations in and below folders.
searched() {
    while IFS= read -r place; do
        if [ -d "$place" ]; then
            find -L "$place" -type f \( -name '*.yaml' -o -name '*.yml' -o -name '*.json' -o -name '*.conf' \) 2>/dev/null || true
        else
            files "$place"
        fi
    done
}

running() {
    kubelets | while IFS= read -r process; do
        tr '\000' '\n' <"$process/cmdline" 2>/dev/null | naming_lines units - | sed "s|^[^:]*:[0-9]*: |process ${process##*/}: |"
    done
}

# Clients that are connected now, such as a kubelet whose settings were changed but that was not restarted.
connected() {
    [ -z "$root" ] || return 0
    open=$(timeout 10 /usr/bin/criprobe status 2>/dev/null | awk '$1 == "connections" { print $2; exit }') || open=
    case $open in
        '' | 0 | *[!0-9]*) ;;
        *) echo "open connections of clients: $open; criprobe trace shows who calls" ;;
    esac
}

users() {
    paths=$(sockets)
    found=$(
        {
            configurations | sort -u | naming_lines_of yaml
            units | grep -v '/criprobe[^/]*\.\(service\|socket\)\(\.d/[^/]*\)\{0,1\}$' | sort -u | naming_lines_of units
            variables | sort -u | naming_lines_of units
            running
            connected
        }
    )
    [ -z "$found" ] || { printf '%s\n' "$found"; return 1; }
}

# ---- what the packages' scripts ask for ----

may_be_removed() {
    found=$(users) && return 0
    runtime=$(setting runtime)
    runtime=unix://${runtime:-/run/containerd/containerd.sock}
    if [ "${CRIPROBE_FORCE_REMOVE:-}" = 1 ]; then
        say "criprobe is removed, although these use its socket, and will find no runtime there:"
        say "$found"
        say "Point them at $runtime."
        return 0
    fi
    say "criprobe is NOT removed, because these use its socket, and would find no runtime there:"
    say "$found"
    say "Point them at $runtime, restart what was changed, and remove criprobe then:"
    if "$root/usr/bin/criprobe" help node >/dev/null 2>&1; then
        say "  both      criprobe node revert"
    fi
    say "  kubelet   containerRuntimeEndpoint: $runtime; systemctl restart kubelet"
    say "  crictl    crictl config --set runtime-endpoint=$runtime"
    say "To remove it all the same, set CRIPROBE_FORCE_REMOVE=1 for this command."
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
    if [ $# -gt 0 ] && ! report=$(/usr/bin/criprobe check "$@" 2>&1); then
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
}

case ${1:-}:$# in
    warnings:1) warnings ;;
    users:1) users ;;
    may-be-removed:1) may_be_removed ;;
    hand-over:2) hand_over "$2" ;;
    *) sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
