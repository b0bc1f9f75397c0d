package sandbox

import (
	"path"
	"slices"
	"strings"
)

// VolumeMode is the way in which a sandbox has a volume.
type VolumeMode string

// The modes.
const (
	VolumePrivate VolumeMode = "private"  // one sandbox has the volume, and its writes stay
	VolumeClone   VolumeMode = "clone"    // a copy-on-write clone, which ends with its sandbox
	VolumeShareRO VolumeMode = "share-ro" // a read-only mount of the volume's content at the fork
	// VolumeMove takes the volume from a paused sandbox, which keeps a clone. Only requests have it: the sandbox that
	// gets the volume has it as private.
	VolumeMove VolumeMode = "move"
)

// VolumeMount asks for a volume in a fork's children.
type VolumeMount struct {
	Name     string     // of the volume, or its id
	Path     string     // mount point
	Mode     VolumeMode // empty: private
	ReadOnly bool       // mount it read-only
}

// Volume is a volume of a sandbox.
type Volume struct {
	ID       string // of the volume, or of the one that it is a clone of
	Name     string
	Path     string // mount point in the guest
	Mode     VolumeMode
	ReadOnly bool  `json:",omitempty"`
	Bytes    int64 // size of the disk
}

// MaxVolumes is the number of volumes that a sandbox may have.
const MaxVolumes = 4

const maxVolumePath = 255

// reserved are directories that hold the system or the agent's files. A volume can be mounted on none of them.
// In the directories of under it cannot be mounted either.
var (
	reserved = []string{"/", "/bin", "/boot", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/run", "/sbin", "/usr",
		"/var"}
	under = []string{"/proc", "/sys", "/dev", "/run/forkd", "/etc/forkd", "/usr/lib/forkd", "/var/lib/forkd"}
)

// CheckVolumes returns an error if a child cannot have these volumes. It sets the default mode. With a private
// volume there can be only one child.
func CheckVolumes(all []VolumeMount, n int) error {
	if len(all) > MaxVolumes {
		return Errorf(ErrInvalid, "", "%d volumes, want at most %d", len(all), MaxVolumes)
	}
	for i := range all {
		v := &all[i]
		if v.Mode == "" {
			v.Mode = VolumePrivate
		}
		if err := v.check(n); err != nil {
			return err
		}
		for _, other := range all[:i] {
			if within(v.Path, other.Path) || within(other.Path, v.Path) {
				return Errorf(ErrInvalid, "", "volumes %s and %s would be mounted over each other", Clip(other.Name), Clip(v.Name))
			}
			if other.Name == v.Name {
				return Errorf(ErrInvalid, "", "volume %s is named twice", Clip(v.Name))
			}
		}
	}
	return nil
}

func (v *VolumeMount) check(n int) error {
	if v.Name == "" {
		return Errorf(ErrInvalid, "", "a volume without a name")
	}
	switch v.Mode {
	case VolumePrivate, VolumeMove:
		if n > 1 {
			return Errorf(ErrInvalid, ReasonVolumePrivate, "volume %s can be in one sandbox only, and %d children were "+
				"asked for: use the mode clone or share-ro", Clip(v.Name), n)
		}
	case VolumeClone:
	case VolumeShareRO:
		v.ReadOnly = true
	default:
		return Errorf(ErrInvalid, ReasonVolumeMode, "the mode of a volume is %q, want private, clone, share-ro or move",
			Clip(string(v.Mode)))
	}
	return checkVolumePath(v.Path)
}

func checkVolumePath(p string) error {
	odd := func(r rune) bool { return r < ' ' || r == 0x7f }
	switch {
	case !path.IsAbs(p), path.Clean(p) != p, len(p) > maxVolumePath, strings.ContainsFunc(p, odd):
		return Errorf(ErrInvalid, ReasonVolumePath, "the path of a volume is %q, want an absolute path without . and .. "+
			"and a slash at its end, of at most %d bytes", Clip(p), maxVolumePath)
	case slices.Contains(reserved, p), slices.ContainsFunc(under, func(dir string) bool { return within(p, dir) }):
		return Errorf(ErrInvalid, ReasonVolumePath, "a volume cannot be mounted on %s, which belongs to the system", Clip(p))
	}
	return nil
}

// within reports whether a path is a directory or below it.
func within(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}
