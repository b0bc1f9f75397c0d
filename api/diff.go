package api

// SnapshotDiff is the body of GET /v1/snapshots/{tag}/diff/{other}: the differences of the other
// snapshot. Lists may be cut. Counts include all entries.
type SnapshotDiff struct {
	Before    string      `json:"before" doc:"First snapshot"`
	After     string      `json:"after" doc:"Second snapshot"`
	Files     FileDiff    `json:"files" doc:"Files of the root file system, without other mounts"`
	Processes ProcessDiff `json:"processes" doc:"Kernel threads left out"`
	Packages  PackageDiff `json:"packages" doc:"Installed Debian packages"`
	TookMS    float64     `json:"took_ms" doc:"How long the comparison took"`
}

// DiffCounts counts added, removed and changed entries.
type DiffCounts struct {
	Added    int  `json:"added_count" doc:"Number of entries in the second snapshot only"`
	Removed  int  `json:"removed_count" doc:"Number of entries in the first snapshot only"`
	Changed  int  `json:"changed_count" doc:"Number of entries in both that differ"`
	Complete bool `json:"complete" doc:"False if there were too many to look at, or some could not be read"`
}

// FileDiff lists the differences of files.
type FileDiff struct {
	DiffCounts
	Compared int          `json:"compared" doc:"Paths compared"`
	Added    []FileEntry  `json:"added" doc:"By path" nullable:"false"`
	Removed  []FileEntry  `json:"removed" doc:"By path" nullable:"false"`
	Changed  []FileChange `json:"changed" doc:"By path" nullable:"false"`
}

// FileEntry is a file, folder, link or other entry.
type FileEntry struct {
	Path      string `json:"path" doc:"Absolute path; invalid UTF-8 is replaced"`
	Mode      string `json:"mode" doc:"Type and permissions, such as -rw-r--r--"`
	SizeBytes int64  `json:"size_bytes" doc:"Its size"`
	Target    string `json:"target,omitempty" doc:"Of a symbolic link"`
}

// FileChange is a path in both snapshots. Its fields describe the other snapshot.
type FileChange struct {
	FileEntry
	What            []string `json:"what" doc:"type, size, mtime, ctime, mode, owner, target, device" nullable:"false"`
	ModeBefore      string   `json:"mode_before" doc:"Value in the first snapshot"`
	SizeBytesBefore int64    `json:"size_bytes_before" doc:"Value in the first snapshot"`
}

// ProcessDiff lists the differences of processes and their memory. Two processes are the same if
// pid and start time are equal.
type ProcessDiff struct {
	DiffCounts
	Started []ProcessEntry  `json:"started" doc:"Processes of the second snapshot only" nullable:"false"`
	Ended   []ProcessEntry  `json:"ended" doc:"Processes of the first snapshot only" nullable:"false"`
	Changed []ProcessChange `json:"changed" doc:"Processes with different memory use, largest difference first" nullable:"false"`
}

// ProcessEntry is a process.
type ProcessEntry struct {
	PID     int      `json:"pid" doc:"Its number in the guest"`
	PPID    int      `json:"ppid" doc:"Process ID of its parent"`
	UID     uint32   `json:"uid" doc:"User ID"`
	Name    string   `json:"name" doc:"Name of its program"`
	Args    []string `json:"args" doc:"Its command line, cut at 512 bytes" nullable:"false"`
	RSSKiB  int64    `json:"rss_kib" doc:"Resident set size"`
	PSSKiB  int64    `json:"pss_kib" doc:"Proportional set size: shared pages count by their share"`
	AnonKiB int64    `json:"anon_kib" doc:"Anonymous memory"`
}

// ProcessChange is a process that runs in both snapshots. Its fields describe the other snapshot.
type ProcessChange struct {
	ProcessEntry
	RSSKiBBefore  int64 `json:"rss_kib_before" doc:"Value in the first snapshot"`
	PSSKiBBefore  int64 `json:"pss_kib_before" doc:"Value in the first snapshot"`
	AnonKiBBefore int64 `json:"anon_kib_before" doc:"Value in the first snapshot"`
}

// PackageDiff lists the differences of packages.
type PackageDiff struct {
	DiffCounts
	Added   []PackageEntry  `json:"added" doc:"As dpkg lists them" nullable:"false"`
	Removed []PackageEntry  `json:"removed" doc:"As dpkg lists them" nullable:"false"`
	Changed []PackageChange `json:"changed" doc:"Packages with different versions" nullable:"false"`
}

// PackageEntry is an installed package.
type PackageEntry struct {
	Name         string `json:"name" doc:"Its name"`
	Architecture string `json:"architecture" doc:"Target architecture"`
	Version      string `json:"version" doc:"Its version"`
}

// PackageChange is a package with another version.
type PackageChange struct {
	PackageEntry
	VersionBefore string `json:"version_before" doc:"Value in the first snapshot"`
}
