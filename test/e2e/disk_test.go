package e2e

import (
	"strings"
	"testing"
)

// makePackage builds a Debian package in the guest, so no mirror is needed.
const makePackage = `set -e
mkdir -p /tmp/p/DEBIAN /tmp/p/usr/bin
printf 'Package: mine\nVersion: 1\nArchitecture: all\nMaintainer: me <me@example.org>\nDescription: mine\n' > /tmp/p/DEBIAN/control
printf '#!/bin/sh\necho installed\n' > /tmp/p/usr/bin/mine
chmod 755 /tmp/p/DEBIAN /tmp/p/usr/bin/mine
dpkg-deb --build /tmp/p /tmp/mine.deb >&2
dpkg --install /tmp/mine.deb >&2
sync
mine`

// A package installed by one child is on the disk of this child. It survives there, siblings do not
// have it, and the space is freed when the child is killed.
func TestAPackageIsInstalledInOneChild(t *testing.T) {
	d := shared(t)
	d.unchanged()
	before := len(names(d.owns()))
	sbs := d.fork(2)
	if got := d.sh(sbs[0].ID, "grep ' / ' /proc/mounts"); !strings.Contains(got, "overlay") {
		t.Errorf("the root is %q", got)
	}
	if got := d.sh(sbs[0].ID, makePackage); got != "installed" {
		t.Errorf("the package says %q", got)
	}
	if got := d.sh(sbs[0].ID, "echo 3 > /proc/sys/vm/drop_caches; mine"); got != "installed" {
		t.Errorf("read back from the disk it says %q", got)
	}
	if got := d.sh(sbs[1].ID, "command -v mine; dpkg-query -W mine 2>/dev/null; true"); got != "" {
		t.Errorf("its sibling has %q", got)
	}
	if n := len(names(d.owns())) - before; n != len(sbs) {
		t.Errorf("%d files of disks for %d sandboxes", n, len(sbs))
	}
}
