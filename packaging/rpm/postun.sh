# After a removal (0). Configuration that was changed, and state, stay.
if [ "$1" -eq 0 ]; then
    # systemd leaves it, for containers that have mounted it.
    rm -rf /run/criprobe
    # The folders, which belong to no package.
    rmdir /usr/lib/criprobe /usr/share/criprobe/prometheus /usr/share/criprobe/grafana /usr/share/criprobe \
        /usr/share/doc/criprobe /usr/share/licenses/criprobe 2>/dev/null || :
    rmdir /etc/criprobe/conf.d /etc/criprobe 2>/dev/null || :
    rmdir /var/lib/criprobe /var/log/criprobe 2>/dev/null || :
fi
if [ -d /run/systemd/system ]; then
    systemctl --system daemon-reload >/dev/null || :
    # Otherwise it is listed as failed although it is gone.
    [ "$1" -gt 0 ] || systemctl reset-failed criprobe.service criprobe.socket >/dev/null 2>&1 || :
fi
exit 0
