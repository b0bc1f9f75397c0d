package guestdiff

import "io/fs"

// Diff is what differs in the second guest from the first. Lists are at most as
// long as was asked for; the counts are of everything.
type Diff struct {
	Files     Files
	Processes Processes
	Packages  Packages
}

// Counts are of entries by what became of them.
type Counts struct{ Added, Removed, Changed int }

// Files are those of the root file system, by path.
type Files struct {
	Counts
	Added, Removed []File
	Changed        []FileChange
	Compared       int // paths that were looked at
	// Complete is false if there are more files than are compared, or some could
	// not be read: then a difference may be missing.
	Complete bool
}

// File is one file, folder, link or other entry.
type File struct {
	Path   string
	Mode   fs.FileMode
	Size   int64 // bytes
	Target string
}

// FileChange is a path that is there in both.
type FileChange struct {
	Before, After File
	// What differs: type, size, mtime, ctime, mode, owner, target, device.
	What []string
}

// Processes are matched by pid and start time, so that they are the same ones.
type Processes struct {
	Counts
	Started, Ended []Process
	Changed        []ProcessChange // in memory, by how much
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

// Memory of a process, in KiB.
type Memory struct {
	RSS  int64 // all that is mapped and present
	PSS  int64 // the same, but what is shared by n processes counts as 1/n
	Anon int64 // of its own, in no file
}

// ProcessChange is a process that is there in both.
type ProcessChange struct {
	Process // as it is in the second
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

// PackageChange is a package of another version.
type PackageChange struct {
	Package // as it is in the second
	Before  string
}
