package api

// SnapshotDiff is the body of GET /v1/snapshots/{tag}/diff/{other}: the differences of the other
// snapshot. Lists may be cut. Counts include all entries.
type SnapshotDiff struct {
	Before    string      `json:"before" doc:"The snapshot that is compared with"`
	After     string      `json:"after" doc:"The other one"`
	Files     FileDiff    `json:"files" doc:"Of the root file system, other mounts left out"`
	Processes ProcessDiff `json:"processes" doc:"Kernel threads left out"`
	Packages  PackageDiff `json:"packages" doc:"Installed Debian packages"`
	TookMS    float64     `json:"took_ms" doc:"How long the comparison took"`
}

// DiffCounts counts added, removed and changed entries.
type DiffCounts struct {
	Added    int  `json:"added_count" doc:"Those that are in the other one only"`
	Removed  int  `json:"removed_count" doc:"Those that are not in the other one"`
	Changed  int  `json:"changed_count" doc:"Those that are in both and differ"`
	Complete bool `json:"complete" doc:"False if there were too many to look at, or some could not be read"`
}

// FileDiff lists the differences of files.
type FileDiff struct {
	DiffCounts
	Compared int          `json:"compared" doc:"Paths that were looked at"`
	Added    []FileEntry  `json:"added" doc:"By path" nullable:"false"`
	Removed  []FileEntry  `json:"removed" doc:"By path" nullable:"false"`
	Changed  []FileChange `json:"changed" doc:"By path" nullable:"false"`
}

// FileEntry is a file, folder, link or other entry.
type FileEntry struct {
	Path      string `json:"path" doc:"Absolute path; bytes that are no UTF-8 are replaced"`
	Mode      string `json:"mode" doc:"Type and permissions, such as -rw-r--r--"`
	SizeBytes int64  `json:"size_bytes" doc:"Its size"`
	Target    string `json:"target,omitempty" doc:"Of a symbolic link"`
}

// FileChange is a path in both snapshots. Its fields describe the other snapshot.
type FileChange struct {
	FileEntry
	What            []string `json:"what" doc:"type, size, mtime, ctime, mode, owner, target, device" nullable:"false"`
	ModeBefore      string   `json:"mode_before" doc:"What it was"`
	SizeBytesBefore int64    `json:"size_bytes_before" doc:"What it was"`
}

// ProcessDiff lists the differences of processes and their memory. Two processes are the same if
// pid and start time are equal.
type ProcessDiff struct {
	DiffCounts
	Started []ProcessEntry  `json:"started" doc:"Those that run in the other one only" nullable:"false"`
	Ended   []ProcessEntry  `json:"ended" doc:"Those that do not run in the other one" nullable:"false"`
	Changed []ProcessChange `json:"changed" doc:"Those whose memory differs, the largest difference first" nullable:"false"`
}

// ProcessEntry is a process.
type ProcessEntry struct {
	PID     int      `json:"pid" doc:"Its number in the guest"`
	PPID    int      `json:"ppid" doc:"That of the process that started it"`
	UID     uint32   `json:"uid" doc:"User that it runs as"`
	Name    string   `json:"name" doc:"Name of its program"`
	Args    []string `json:"args" doc:"Its command line, cut at 512 bytes" nullable:"false"`
	RSSKiB  int64    `json:"rss_kib" doc:"Memory that is mapped and present"`
	PSSKiB  int64    `json:"pss_kib" doc:"The same, with its share only of what others map too"`
	AnonKiB int64    `json:"anon_kib" doc:"Memory of its own that is in no file"`
}

// ProcessChange is a process that runs in both snapshots. Its fields describe the other snapshot.
type ProcessChange struct {
	ProcessEntry
	RSSKiBBefore  int64 `json:"rss_kib_before" doc:"What it was"`
	PSSKiBBefore  int64 `json:"pss_kib_before" doc:"What it was"`
	AnonKiBBefore int64 `json:"anon_kib_before" doc:"What it was"`
}

// PackageDiff lists the differences of packages.
type PackageDiff struct {
	DiffCounts
	Added   []PackageEntry  `json:"added" doc:"As dpkg lists them" nullable:"false"`
	Removed []PackageEntry  `json:"removed" doc:"As dpkg lists them" nullable:"false"`
	Changed []PackageChange `json:"changed" doc:"Those of another version" nullable:"false"`
}

// PackageEntry is an installed package.
type PackageEntry struct {
	Name         string `json:"name" doc:"Its name"`
	Architecture string `json:"architecture" doc:"What it is built for"`
	Version      string `json:"version" doc:"Its version"`
}

// PackageChange is a package with another version.
type PackageChange struct {
	PackageEntry
	VersionBefore string `json:"version_before" doc:"What it was"`
}
