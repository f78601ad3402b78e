# After an installation (1) or an upgrade (2). Installing starts and enables nothing.
mkdir -p /etc/criprobe/conf.d
/usr/lib/criprobe/maintenance warnings
if [ -d /run/systemd/system ]; then
    systemctl --system daemon-reload >/dev/null || :
    if [ "$1" -gt 1 ]; then
        /usr/lib/criprobe/maintenance hand-over systemctl || exit 1
    fi
fi
exit 0
