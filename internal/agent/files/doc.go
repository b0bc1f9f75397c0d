// Package files looks at and changes the guest's files: the filesystem.Filesystem
// service (watching is package watch's) and the plain HTTP transfer of contents.
// It keeps nothing between requests. What it makes belongs to the requesting
// user, but it reads and writes as the agent, which is root: users of one guest
// are a convenience, not a boundary, and the guest is. The trap: a path may name
// a pipe or a device, whose open blocks for ever, so only regular files are
// opened.
package files
