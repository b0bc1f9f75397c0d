package image

// GuestLimits are limits of programs in the guest. 0 is the agent's default.
type GuestLimits struct {
	// OpenFiles is the soft limit of open files of a process, 1024 to 1048576. The default is 65536.
	OpenFiles int `yaml:"open_files" json:"open_files,omitempty"`
	// InotifyWatches is the number of watches of a user, 8192 to 16777216. The default is 524288.
	InotifyWatches int `yaml:"inotify_watches" json:"inotify_watches,omitempty"`
	// InotifyInstances is the number of inotify instances of a user, 128 to 65536. The default is 1024.
	InotifyInstances int `yaml:"inotify_instances" json:"inotify_instances,omitempty"`
}

func (r *Recipe) checkLimits() error {
	for _, l := range []struct {
		key              string
		value, low, high int
	}{
		{"open_files", r.Limits.OpenFiles, 1024, 1 << 20},
		{"inotify_watches", r.Limits.InotifyWatches, 8192, 1 << 24},
		{"inotify_instances", r.Limits.InotifyInstances, 128, 1 << 16},
	} {
		if l.value != 0 && (l.value < l.low || l.value > l.high) {
			return at(0, "limits: %s is %d, want %d to %d", l.key, l.value, l.low, l.high)
		}
	}
	return nil
}
