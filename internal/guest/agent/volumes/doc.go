// Package volumes mounts the volumes of a clone. A volume is a block device with ext4: the guest's driver
// found it at boot with capacity 0, and the host gives it its disk before it sends the identity. A new
// volume may have a smaller file system, which grows to the size of the device at its first mount. The package
// mounts once, with the identity, and never unmounts: a branch's children have the mount in their memory.
package volumes
