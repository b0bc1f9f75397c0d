// Package files looks at and changes the guest's files: the filesystem.Filesystem
// service (watching is package watch's) and the plain HTTP transfer of contents.
// It keeps nothing between requests. It reads and writes with the rights of the
// requesting user (asuser), unless the host asks it to act as root. The traps: a
// path may name a pipe or a device, whose open blocks for ever, so only regular
// files are opened; and whoever owns a folder may put a link into it at any
// moment, so a path is walked once and then held as an open folder.
package files
