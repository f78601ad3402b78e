# Before a removal (0), which is refused while a kubelet or crictl uses the socket. An upgrade (1) stops nothing.
if [ "$1" -eq 0 ]; then
    # A damaged installation can be removed, too.
    [ ! -x /usr/lib/criprobe/maintenance ] || /usr/lib/criprobe/maintenance may-be-removed || exit 1
    systemctl --quiet disable criprobe.service criprobe.socket >/dev/null 2>&1 || :
    if [ -d /run/systemd/system ]; then
        # Together: a connection to a socket without its service would start that again.
        systemctl stop criprobe.socket criprobe.service >/dev/null || :
    fi
fi
exit 0
