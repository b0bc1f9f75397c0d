// Package guestdelta has the types of a comparison of two guests: their files, processes and packages. Package
// guestdiff fills them in, and the API shows them. All texts come from guests.
package guestdelta

import "io/fs"

// Diff contains the changes from the first guest to the second. The lists have limited length; the
// counts include all entries.
type Diff struct {
	Files     Files     // at most maxFiles of each guest are compared
	Processes Processes // running at the time of each inventory
	Packages  Packages  // empty in guests without dpkg
}

// Counts counts added, removed and changed entries.
type Counts struct {
	Added, Removed, Changed int // including entries beyond the limit of a list
}

// Files contains the changes in the root file system, by path.
type Files struct {
	Counts
	Added, Removed []File       // only in the second or only in the first guest, by path
	Changed        []FileChange // in both guests, by path
	Compared       int          // number of compared paths
	// Complete is false if there are more files than the limit, or if some could not be read. A
	// difference may then be missing.
	Complete bool
}

// File is one file, folder, link or other entry.
type File struct {
	Path   string      // absolute; invalid UTF-8 is replaced
	Mode   fs.FileMode // type, permissions, setuid, setgid and sticky bit
	Size   int64       // bytes
	Target string      // of a symbolic link; otherwise empty
}

// FileChange is a changed path that exists in both guests.
type FileChange struct {
	Before, After File // in the first and the second guest
	// What lists the differences: type, size, mtime, ctime, mode, owner, target, device.
	What []string
}

// Processes are matched by pid and start time, to compare the same process.
type Processes struct {
	Counts
	Started, Ended []Process       // only in the second or only in the first guest
	Changed        []ProcessChange // in memory, sorted by size of the change
	Complete       bool            // false if a guest left processes out of its list
}

// Process is one process and its memory.
type Process struct {
	PID, PPID int      // in the guest's PID namespace
	UID       uint32   // numeric user in the guest
	Name      string   // invalid UTF-8 is replaced, also in Args
	Args      []string // including argument 0
	Memory    Memory   // at the time of the inventory
}

// Memory is the memory of a process, in KiB.
type Memory struct {
	RSS  int64 // all mapped and present pages
	PSS  int64 // likewise, but memory shared by n processes counts as 1/n
	Anon int64 // private, not backed by a file
}

// ProcessChange is a changed process that exists in both guests.
type ProcessChange struct {
	Process        // in the second guest
	Before  Memory // in the first guest
}

// Packages are Debian packages, by name and architecture.
type Packages struct {
	Counts
	Added, Removed []Package       // only in the second or only in the first guest
	Changed        []PackageChange // other version, same name and architecture
	Complete       bool            // false if a guest left packages out of its list
}

// Package is one installed package.
type Package struct {
	Name, Architecture, Version string // as in dpkg's status file
}

// PackageChange is a package with another version.
type PackageChange struct {
	Package        // in the second guest
	Before  string // version in the first guest
}
