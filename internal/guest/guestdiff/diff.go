package guestdiff

import "io/fs"

// Diff contains the changes from the first guest to the second. The lists have limited length; the
// counts include all entries.
type Diff struct {
	Files     Files
	Processes Processes
	Packages  Packages
}

// Counts counts added, removed and changed entries.
type Counts struct{ Added, Removed, Changed int }

// Files contains the changes in the root file system, by path.
type Files struct {
	Counts
	Added, Removed []File
	Changed        []FileChange
	Compared       int // number of compared paths
	// Complete is false if there are more files than the limit, or if some could not be read. A
	// difference may then be missing.
	Complete bool
}

// File is one file, folder, link or other entry.
type File struct {
	Path   string
	Mode   fs.FileMode
	Size   int64 // bytes
	Target string
}

// FileChange is a changed path that exists in both guests.
type FileChange struct {
	Before, After File
	// What lists the differences: type, size, mtime, ctime, mode, owner, target, device.
	What []string
}

// Processes are matched by pid and start time, to compare the same process.
type Processes struct {
	Counts
	Started, Ended []Process
	Changed        []ProcessChange // in memory, sorted by size of the change
	Complete       bool
}

// Process is one process and its memory.
type Process struct {
	PID, PPID int
	UID       uint32
	Name      string
	Args      []string
	Memory    Memory
}

// Memory is the memory of a process, in KiB.
type Memory struct {
	RSS  int64 // all mapped and present pages
	PSS  int64 // likewise, but memory shared by n processes counts as 1/n
	Anon int64 // private, not backed by a file
}

// ProcessChange is a changed process that exists in both guests.
type ProcessChange struct {
	Process // in the second guest
	Before  Memory
}

// Packages are Debian packages, by name and architecture.
type Packages struct {
	Counts
	Added, Removed []Package
	Changed        []PackageChange
	Complete       bool
}

// Package is one installed package.
type Package struct{ Name, Architecture, Version string }

// PackageChange is a package with another version.
type PackageChange struct {
	Package // in the second guest
	Before  string
}
