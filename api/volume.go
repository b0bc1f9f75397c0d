package api

// VolumePattern matches the name of a volume.
const VolumePattern = "^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$"

// VolumeMode is the way in which a sandbox has a volume.
type VolumeMode string

// The modes.
const (
	VolumePrivate VolumeMode = "private"
	VolumeClone   VolumeMode = "clone"
	VolumeShareRO VolumeMode = "share-ro"
	VolumeMove    VolumeMode = "move"
)

// VolumeMount is a volume in a sandbox.
type VolumeMount struct {
	Name     string     `json:"name" doc:"Name of the volume" pattern:"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$" patternDescription:"1 to 63 letters, digits, - or _, and no - or _ first"`
	Path     string     `json:"path" doc:"Directory of the sandbox to mount it on, absolute; made if it is missing" maxLength:"255"`
	Mode     VolumeMode `json:"mode,omitempty" doc:"private: the sandbox alone has the volume, and its writes stay. clone: each child has a copy-on-write clone, which ends with it. share-ro: each child reads the volume's content at the fork. move: private, and taken from the paused sandbox that has it, which keeps a clone. Absent: private"`
	ReadOnly bool       `json:"read_only,omitempty" doc:"Mount it read-only"`
}

// SnapshotVolume is a volume whose content a snapshot contains.
type SnapshotVolume struct {
	Name     string `json:"name" doc:"Name of the volume when the snapshot was made"`
	Path     string `json:"path" doc:"Mount point in the guest"`
	SizeMiB  int64  `json:"size_mib" doc:"Size of its disk"`
	ReadOnly bool   `json:"read_only,omitempty" doc:"The guest has mounted it read-only"`
}

// CreateVolumeRequest is the body of POST /v1/volumes.
type CreateVolumeRequest struct {
	Name    string `json:"name" doc:"Name of the volume, unique within its tenant" pattern:"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$" patternDescription:"1 to 63 letters, digits, - or _, and no - or _ first"`
	SizeMiB int64  `json:"size_mib,omitempty" doc:"Size of its disk, which takes space as it is written, 64 MiB to 1 TiB; absent: 10 GiB, or the size of the volume that it is cloned from" minimum:"64" maximum:"1048576"`
	From    string `json:"from,omitempty" doc:"Volume to clone, which no sandbox may have as private; absent: the volume is empty" maxLength:"63"`
}

// SnapshotVolumeRequest is the body of POST /v1/volumes/{volume}/snapshot.
type SnapshotVolumeRequest struct {
	Name string `json:"name" doc:"Name of the snapshot, a volume that cannot be written" pattern:"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$" patternDescription:"1 to 63 letters, digits, - or _, and no - or _ first"`
}

// Volume describes a volume.
type Volume struct {
	ID          string `json:"id" doc:"Identifies the volume; a volume made again under the same name has another"`
	Name        string `json:"name" doc:"Name of the volume"`
	Tenant      string `json:"tenant,omitempty" doc:"Owning tenant; absent: the operator"`
	SizeMiB     int64  `json:"size_mib" doc:"Size of its disk"`
	StoredBytes int64  `json:"stored_bytes" doc:"Space of its own files on the daemon's disk. Clones share files, and each counts them"`
	CreatedUnix int64  `json:"created_at_unix" doc:"When it was made, in seconds since 1970"`
	From        string `json:"from,omitempty" doc:"Volume that it was cloned from"`
	ReadOnly    bool   `json:"read_only,omitempty" doc:"It is a snapshot of a volume and cannot be written"`
	Sandbox     string `json:"sandbox,omitempty" doc:"Sandbox that has it as private; absent: none"`
}
