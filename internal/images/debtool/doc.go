// Package debtool runs the host's tools (apt, mmdebstrap, mkfs.erofs): it kills
// the whole process tree on cancel, keeps the last lines of output for the error,
// and names the Debian package of a tool that is missing. It knows nothing about
// what the tools do. Packages kernelpkg and image call it. The trap: tools run with
// LC_ALL=C, since callers read their output.
package debtool
