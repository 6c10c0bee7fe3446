# Becomes one host of the SSH lab, then its sshd. Runs as root in new mount, pid, uts and ipc namespaces and the
# host's own network. NAME, STAGE (an empty folder), SEED (files laid over the root), DISK and SHM (sizes),
# SHARED (folders common to all hosts) and HIDDEN (folders under /tmp that must stay visible), one a line.
set -eu
hostname "$NAME"

mount -t tmpfs -o "size=$DISK" disk "$STAGE"
mkdir "$STAGE/upper" "$STAGE/work" "$STAGE/root"
cp -a "$SEED/." "$STAGE/upper"
root=$STAGE/root
mount -t overlay -o "lowerdir=/,upperdir=$STAGE/upper,workdir=$STAGE/work" host "$root"

mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t tmpfs -o "mode=1777,size=$SHM" shm "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777 tmp "$root/tmp"
mount -t tmpfs -o mode=755 run "$root/run"
mkdir "$root/run/sshd"

# Each boot has an identity, as on a real machine.
cat /proc/sys/kernel/random/uuid > "$STAGE/boot_id"
mount --bind "$STAGE/boot_id" "$root/proc/sys/kernel/random/boot_id"

printf %s "$HIDDEN" | while IFS= read -r folder; do
    layer=$(mktemp -d "$STAGE/layer.XXXXXX")
    mkdir "$layer/upper" "$layer/work"
    mkdir -p "$root$folder"
    mount -t overlay -o "lowerdir=$folder,upperdir=$layer/upper,workdir=$layer/work" host "$root$folder"
done
printf %s "$SHARED" | while IFS= read -r folder; do
    mkdir -p "$root$folder"
    mount --bind "$folder" "$root$folder"
done

cd "$root"
pivot_root . mnt
umount -l /mnt
cd /
exec /usr/sbin/sshd -D -f /etc/ssh/lab/sshd_config -E /var/log/sshd.log < /dev/null
