package labels

import (
	"maps"
	"slices"
)

// VolumeFiles marks the sandboxes that the daemon forks for requests for the files of a volume. Its value is the
// volume's id.
const VolumeFiles = "forkd.volume-files"

// reserved are the keys that only the daemon sets. Others that begin with "forkd." are users' rules of retention.
var reserved = []string{VolumeFiles}

// Reserved reports whether only the daemon may set or remove a label.
func Reserved(key string) bool { return slices.Contains(reserved, key) }

// Inherited returns the labels of an object that another one inherits: a copy does not do the daemon's own work.
func Inherited(set map[string]string) map[string]string {
	if !slices.ContainsFunc(reserved, func(key string) bool { _, has := set[key]; return has }) {
		return set
	}
	out := maps.Clone(set)
	maps.DeleteFunc(out, func(key, _ string) bool { return Reserved(key) })
	return out
}
