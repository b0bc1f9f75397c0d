// Package deb tests the Debian package: its contents and units, and its whole life in a Debian with
// systemd under QEMU (`make test-package`).
package deb
