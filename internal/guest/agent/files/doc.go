// Package files reads and changes the guest's files. It implements the filesystem.Filesystem
// service (except watching, which is in package watch) and the plain HTTP transfer of contents. It
// keeps no state between requests. It uses the rights of the requesting user (package asuser),
// unless the host requests it to act as root.
//
// A path may name a pipe or a device, and opening it may block for ever, so only regular files are
// opened. The owner of a directory may put a link into it at any moment. So a path is walked once,
// and the directory then stays open.
package files
