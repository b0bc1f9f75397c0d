// Package debtool runs tools of the host (apt, mmdebstrap, mkfs.erofs). It kills the whole process tree on
// cancel, keeps the last lines of output for errors, and names the Debian package of a missing tool. It does not
// know the purpose of the tools. Packages kernelpkg and image call it. Beware: tools run with LC_ALL=C, because
// callers parse their output.
package debtool
