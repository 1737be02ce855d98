#!/bin/busybox sh
# The first process of the guest. It brings up the network and siw, says READY at the second serial
# port, and then runs each line that comes there: "NUMBER COMMAND" runs COMMAND in the background.
# What that prints comes back line by line as "NUMBER|LINE", its exit status as "NUMBER=STATUS".
/bin/busybox --install -s /bin
export PATH=/bin HOME=/tmp
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs tmp /tmp
mount -t tmpfs run /run
exec </dev/ttyS1 >/dev/ttyS1 2>/dev/ttyS0
stty raw -echo </dev/ttyS1
for module in crc32c_generic crc32c_intel virtio_pci virtio_net siw rdma_ucm; do
    modprobe "$module"
done
ip link set lo up
ip address add 10.0.2.15/24 dev eth0
ip address add 192.0.2.2/24 dev eth1
for number in 0 1; do
    ip link set "eth$number" up
    rdma link add "siw$number" type siw netdev "eth$number"
done
# Waits until something listens at a TCP port; siw's listeners are there like those of programs.
listening() {
    until grep -qi ":$(printf %04X "$1") 00000000:0000 0A" /proc/net/tcp; do usleep 20000; done
}
run() {
    { (eval "$2") </dev/null 2>&1; echo "$?" >"/tmp/status.$1"; } |
        while IFS= read -r line || [ -n "$line" ]; do echo "$1|$line"; done
    echo "$1=$(cat "/tmp/status.$1")"
}
echo READY
while read -r number command; do
    run "$number" "$command" &
done
