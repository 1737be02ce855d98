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
printf '%s\n' root:x:0:0::/:/bin/sh _rpc:x:101:65534::/run:/bin/false >/etc/passwd
ip address add 10.0.2.15/24 dev eth0
ip address add "$WIRE_ADDRESS/24" dev eth1
for number in 0 1; do
    ip link set "eth$number" up
    rdma link add "siw$number" type siw netdev "eth$number"
done
# "serve PORT PROGRAM ..." runs a server, and says LISTENING when something listens at the TCP port;
# listeners of siw are there like those of programs.
serve() {
    pattern=$(printf ':%04X 00000000:0000 0A' "$1")
    shift
    "$@" &
    while ! grep -q "$pattern" /proc/net/tcp; do
        kill -0 $! || { wait $!; return; }
        usleep 20000
    done
    echo LISTENING
    wait $!
}
# "start_nfs_server PORT MOUNT_PORT" exports /export by the kernel's server, if it does not yet.
start_nfs_server() {
    test ! -e /export || return 0
    mkdir -p /export /run/rpcbind
    mount -t tmpfs export /export
    modprobe -a nfsd rpcrdma
    mount -t nfsd nfsd /proc/fs/nfsd
    touch /etc/exports /var/lib/nfs/etab /var/lib/nfs/rmtab
    rpcbind -w &&
        exportfs -o rw,insecure,no_root_squash,no_subtree_check,fsid=1 '*:/export' &&
        rpc.mountd -p "$2" &&
        rpc.nfsd -N 4 "--rdma=$1" 4
}
run() {
    { (eval "$2") </dev/null 2>&1; echo "$?" >"/tmp/status.$1"; } |
        while IFS= read -r line || [ -n "$line" ]; do echo "$1|$line"; done
    echo "$1=$(cat "/tmp/status.$1")"
}
# What ends while `read` waits would interrupt it, and a part of its line would be lost. So this shell
# has no children that it does not wait for: those are the first process's.
(
    echo READY
    while read -r number command; do
        (run "$number" "$command" &)
    done
)
